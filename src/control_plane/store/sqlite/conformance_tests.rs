//! The conformance suite on both engines.

use std::path::{Path, PathBuf};

use super::*;
use crate::control_plane::store::StoreError;
use crate::control_plane::store::conformance::{Kind, suite};

/// Opens a folder that another handle may still be letting go of: the writer does so once its queue is empty.
fn exclusive(folder: &Path) -> ExclusiveStore {
    loop {
        match ExclusiveStore::open(folder) {
            Ok(exclusive) => return exclusive,
            Err(StoreError::InUse { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{}", crate::error::Chain(&error)),
        }
    }
}

fn put_in_place(folder: &Path, copy: &Path) {
    drop(exclusive(folder));
    std::fs::copy(copy, folder.join(DATABASE)).expect("it is copied");
}

macro_rules! kind {
    ($name:ident, $start:expr) => {
        struct $name(tempfile::TempDir);

        impl Kind for $name {
            fn new() -> Self {
                Self(tempfile::tempdir().expect("a folder"))
            }

            fn open(&self) -> Box<dyn Store> {
                let start: fn(ExclusiveStore) -> SqliteStore = $start;
                Box::new(start(exclusive(self.0.path())))
            }

            fn copy_path(&self) -> PathBuf {
                self.0.path().join("a-copy")
            }

            fn open_copy(&self, copy: &Path) -> Box<dyn Store> {
                put_in_place(self.0.path(), copy);
                self.open()
            }
        }
    };
}

mod threads {
    use super::*;

    kind!(Threads, |exclusive| SqliteStore::start(exclusive).expect("it starts"));
    suite!(Threads);
}

mod inline {
    use super::*;

    kind!(Inline, SqliteStore::inline);
    suite!(Inline);
}
