//! What [`super::Workdirs`] makes and what it refuses.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;
use crate::error::Chain;

fn names() -> (KubeNamespace, InstanceName) {
    ("nymph-runs".parse().expect("a namespace"), "lakeshore-0a1b2c3d".parse().expect("an instance"))
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it exists").permissions().mode() & 0o7777
}

#[test]
fn a_workdir_is_made_with_its_parents_closed_and_its_leaf_open() {
    let dir = TempDir::new().expect("a temporary folder");
    let root = dir.path().join("not/there/yet");
    let (namespace, instance) = names();
    let workdirs = Workdirs::open(&root).expect("the root is made");
    workdirs.create(&namespace, &instance).expect("it is made");
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("nymph-runs")), 0o700);
    assert_eq!(mode(&root.join("nymph-runs/lakeshore-0a1b2c3d")), 0o777, "whatever the umask");
}

#[test]
fn making_it_again_keeps_what_is_in_it_and_opens_it_again() {
    let dir = TempDir::new().expect("a temporary folder");
    let (namespace, instance) = names();
    let workdirs = Workdirs::open(dir.path()).expect("a root");
    workdirs.create(&namespace, &instance).expect("it is made");
    let leaf = dir.path().join("nymph-runs/lakeshore-0a1b2c3d");
    fs::write(leaf.join("kept"), "kept").expect("a file");
    fs::set_permissions(&leaf, fs::Permissions::from_mode(0o700)).expect("closed");
    workdirs.create(&namespace, &instance).expect("it is there already");
    assert_eq!(fs::read(leaf.join("kept")).expect("the file"), b"kept");
    assert_eq!(mode(&leaf), 0o777);
}

#[test]
fn a_root_that_vanished_is_made_again() {
    let dir = TempDir::new().expect("a temporary folder");
    let (namespace, instance) = names();
    let root = dir.path().join("root");
    let workdirs = Workdirs::open(&root).expect("a root");
    fs::remove_dir(&root).expect("it was empty");
    workdirs.create(&namespace, &instance).expect("it is made again");
    assert!(root.join("nymph-runs/lakeshore-0a1b2c3d").is_dir());
}

/// At each level below the folders above the root: (path of the thing in the way, relative).
const LEVELS: [&str; 3] = ["root", "root/nymph-runs", "root/nymph-runs/lakeshore-0a1b2c3d"];

fn attempt(root: &Path) -> Result<(), HostError> {
    let (namespace, instance) = names();
    Workdirs::open(root)?.create(&namespace, &instance)
}

#[test]
fn a_link_at_any_level_is_refused_and_what_it_points_to_is_untouched() {
    for level in LEVELS {
        for dangling in [false, true] {
            let dir = TempDir::new().expect("a temporary folder");
            let (victim, planted) = (dir.path().join("victim"), dir.path().join(level));
            if !dangling {
                fs::create_dir(&victim).expect("a folder");
                fs::set_permissions(&victim, fs::Permissions::from_mode(0o750)).expect("a mode of its own");
            }
            fs::create_dir_all(planted.parent().expect("a parent")).expect("the parents");
            symlink(&victim, &planted).expect("a link");
            let error = attempt(&dir.path().join("root")).expect_err(level);
            assert!(matches!(&error, HostError::InTheWay { path, found: "a symbolic link" } if *path == planted), "{level}: {error}");
            assert_eq!(victim.exists(), !dangling, "{level}: nothing was made through the link");
            if !dangling {
                assert_eq!(mode(&victim), 0o750, "{level}: the mode was changed through the link");
                assert_eq!(fs::read_dir(&victim).expect("readable").count(), 0, "{level}: something was made through the link");
            }
        }
    }
}

#[test]
fn a_folder_that_is_exchanged_for_a_link_all_the_time_never_leads_outside() {
    let dir = TempDir::new().expect("a temporary folder");
    let (root, victim) = (dir.path().join("root"), dir.path().join("victim"));
    fs::create_dir(&victim).expect("a folder");
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o750)).expect("a mode of its own");
    fs::create_dir(&root).expect("the root");
    let (planted, link, real) = (root.join("nymph-runs"), root.join("link"), root.join("real"));
    symlink(&victim, &link).expect("a link");
    fs::create_dir(&real).expect("a folder");
    fs::create_dir(&planted).expect("a folder");
    let (namespace, instance) = names();
    let workdirs = Workdirs::open(&root).expect("a root");
    let stop = AtomicBool::new(false);
    let (mut made, mut refused, mut other) = (0, 0, None);
    std::thread::scope(|scope| {
        let exchanger = scope.spawn(|| {
            let (here, flags) = (nix::fcntl::AT_FDCWD, nix::fcntl::RenameFlags::RENAME_EXCHANGE);
            while !stop.load(Ordering::Relaxed) {
                for thing in [&link, &real] {
                    // In one step each, so that there is no moment at which nothing stands there.
                    nix::fcntl::renameat2(here, thing, here, &planted, flags).expect("the file system can exchange names");
                }
            }
        });
        // Until both have happened as often as the fault list asks for, whatever the machine's load.
        while (made < 10_000 || refused < 10_000) && !exchanger.is_finished() {
            match workdirs.create(&namespace, &instance) {
                Ok(()) => made += 1,
                Err(HostError::InTheWay { .. } | HostError::Refused { .. }) => refused += 1,
                Err(error) => {
                    other = Some(error);
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(other.is_none(), "{other:?}");
    assert!(made >= 10_000 && refused >= 10_000, "{made} made, {refused} refused");
    assert_eq!(fs::read_dir(&victim).expect("readable").count(), 0, "something was made through the link");
    assert_eq!(mode(&victim), 0o750, "the mode was changed through the link");
}

#[test]
fn a_file_at_any_level_is_refused_and_kept() {
    for level in LEVELS {
        let dir = TempDir::new().expect("a temporary folder");
        let planted = dir.path().join(level);
        fs::create_dir_all(planted.parent().expect("a parent")).expect("the parents");
        fs::write(&planted, "precious").expect("a file");
        let error = attempt(&dir.path().join("root")).expect_err(level);
        assert!(matches!(&error, HostError::InTheWay { found: "a file", .. }), "{level}: {error}");
        assert!(error.to_string().contains("move it away"), "{error}");
        assert_eq!(fs::read(&planted).expect("the file"), b"precious");
    }
}

#[test]
fn a_folder_of_another_user_is_refused_at_any_level() {
    if !Uid::effective().is_root() {
        eprintln!("skipped: only root can give a folder away");
        return;
    }
    for level in LEVELS {
        let dir = TempDir::new().expect("a temporary folder");
        let planted = dir.path().join(level);
        fs::create_dir_all(&planted).expect("the folders");
        std::os::unix::fs::chown(&planted, Some(12_345), None).expect("root may");
        let error = attempt(&dir.path().join("root")).expect_err(level);
        assert!(matches!(&error, HostError::Owner { owner: 12_345, expected: 0, path } if *path == planted), "{level}: {error}");
        assert!(error.to_string().contains("chown 0"), "{error}");
        assert_eq!(fs::metadata(&planted).expect("it stays").uid(), 12_345);
    }
}

#[test]
fn a_link_above_the_root_is_the_node_owners_and_followed() {
    let dir = TempDir::new().expect("a temporary folder");
    fs::create_dir(dir.path().join("disk")).expect("a folder");
    symlink(dir.path().join("disk"), dir.path().join("lib")).expect("a link");
    attempt(&dir.path().join("lib/root")).expect("the link is followed");
    assert!(dir.path().join("disk/root/nymph-runs/lakeshore-0a1b2c3d").is_dir());
}

#[test]
fn a_root_that_is_no_place_for_folders_is_refused() {
    for bad in ["", "relative/root", "/", "/.."] {
        assert!(matches!(Workdirs::open(Path::new(bad)), Err(HostError::Root { .. })), "{bad:?}");
    }
    let error = Workdirs::open(Path::new("/proc/nymph/root")).expect_err("nothing can be made there");
    assert!(Chain(&error).to_string().contains("/proc/nymph/root"), "{}", Chain(&error));
}

#[test]
fn the_probe_leaves_nothing_behind_and_survives_its_own_leftover() {
    let dir = TempDir::new().expect("a temporary folder");
    let workdirs = Workdirs::open(dir.path()).expect("a root");
    workdirs.writable().expect("it is writable");
    fs::create_dir(dir.path().join(PROBE)).expect("a leftover");
    workdirs.writable().expect("a leftover is no obstacle");
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
    fs::write(dir.path().join(PROBE), "").expect("a file");
    assert!(workdirs.writable().is_err(), "something that is not the probe's folder is not removed");
}
