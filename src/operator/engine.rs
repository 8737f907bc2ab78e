//! The engines of a Kunpeng accelerator, and what each is called where.

/// PCI vendor of the engines (HiSilicon).
pub const VENDOR: &str = "19e5";

/// A kind of engine. Ids and drivers: `drivers/crypto/hisilicon` in
/// <https://github.com/torvalds/linux/tree/v6.12/drivers/crypto/hisilicon>.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// RSA, DH and elliptic curves.
    Hpre,
    /// Ciphers and digests.
    Sec,
    /// Compression.
    Zip,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hpre, Self::Sec, Self::Zip];

    /// As in labels, resources and arguments.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hpre => "hpre",
            Self::Sec => "sec",
            Self::Zip => "zip",
        }
    }

    /// PCI device ids: of the physical function, then of the virtual one.
    pub fn devices(self) -> [&'static str; 2] {
        match self {
            Self::Hpre => ["a258", "a259"],
            Self::Sec => ["a255", "a256"],
            Self::Zip => ["a250", "a251"],
        }
    }

    /// Its kernel driver.
    pub fn driver(self) -> &'static str {
        match self {
            Self::Hpre => "hisi_hpre",
            Self::Sec => "hisi_sec2",
            Self::Zip => "hisi_zip",
        }
    }

    /// The node label by which Node Feature Discovery tells that it is there.
    pub fn present_label(self) -> &'static str {
        match self {
            Self::Hpre => "openfuyao.com/kae.hpre.present",
            Self::Sec => "openfuyao.com/kae.sec.present",
            Self::Zip => "openfuyao.com/kae.zip.present",
        }
    }
}
