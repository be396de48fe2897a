//! Room on the disk under the data folder. What runs must be able to end: its reports, acknowledgements and logs are still stored
//! when new launches are not.

use std::path::PathBuf;

use nix::sys::statvfs::statvfs;

/// The data folder's file system, and how much of it must stay free for a launch to be taken.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
    floor: u64,
}

/// Too little room.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the disk under the data folder has {} MiB free, and launches need {} MiB", free >> 20, floor >> 20)]
pub(crate) struct Full {
    free: u64,
    floor: u64,
}

impl Disk {
    pub(crate) fn new(folder: PathBuf, floor: u64) -> Self {
        Self { folder, floor }
    }

    /// Whether there is room for more work. A file system that does not say is left to the database to find out about.
    pub(crate) fn check(&self) -> Result<(), Full> {
        let Ok(stat) = statvfs(&self.folder) else { return Ok(()) };
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        if free < self.floor { Err(Full { free, floor: self.floor }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_free_above_the_floor() {
        let folder = std::env::temp_dir();
        assert_eq!(Disk::new(folder.clone(), 0).check(), Ok(()));
        let full = Disk::new(folder, u64::MAX).check().expect_err("no disk is so large");
        assert!(full.to_string().contains("the disk under the data folder has"), "{full}");
        assert_eq!(Disk::new("/nowhere/at/all".into(), u64::MAX).check(), Ok(()), "it is not this check that says so");
    }
}
