//! Floor 1: the config, from text with positions to a checked [`Config`].

mod types;

pub use types::{
    AdditionalInfo, AllocationPolicy, Config, DeviceType, FunctionType, HealthPolicy, InfoTarget, LinkHealth,
    NamePattern, PfName, PoolConfig, RefusedPool, RootDevice, Selector, UacceView, VdpaType, VfioMode,
    WaitFor,
};
