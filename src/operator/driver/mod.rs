//! The engine that installs, checks and removes the KAE driver on a node. It knows a directory that is the node's root,
//! and the programs of that root; it speaks to no cluster.
