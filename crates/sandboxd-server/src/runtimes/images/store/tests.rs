//! Images in a store of their own: what comes in, what is refused, what goes.

use super::super::made::Tar;
use super::super::{Imported, Removed, Untold, import};
use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

/// A store, and room for files beside it.
struct Home {
    directory: tempfile::TempDir,
    images: Images,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::of(&directory.path().join("state"));
        Self { directory, images }
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn import(&self, path: &Path, name: Option<&str>) -> Result<Vec<Imported>, ImageError> {
        let name = name.map(|name| Reference::parse(name).unwrap());
        import(
            &self.images,
            path,
            name.as_ref(),
            &Cancel::default(),
            &Untold,
        )
    }

    /// An archive as `docker save` writes it, of these layers, the lowest first.
    fn saved(&self, tags: &[&str], config: &str, layers: &[Vec<u8>]) -> PathBuf {
        self.file("saved.tar", &saved(tags, config, layers))
    }

    /// Everything in the store that is no lock and no empty directory.
    fn left(&self) -> Vec<PathBuf> {
        let parts = ["layers", "images", "names", "blobs", "making"];
        parts
            .iter()
            .flat_map(|part| locks::entries(&self.images.home.join(part)).unwrap())
            .collect()
    }
}

fn config(layers: &[Vec<u8>], more: &str) -> String {
    let digests = layers
        .iter()
        .map(|layer| format!("\"{}\"", Digest::of(layer)));
    let digests = digests.collect::<Vec<_>>().join(",");
    format!(r#"{{{more}"rootfs":{{"type":"layers","diff_ids":[{digests}]}}}}"#)
}

fn saved(tags: &[&str], config: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, content).unwrap();
    };
    let mut files = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("{number}/layer.tar");
        add(&name, layer);
        files.push(name);
    }
    add("config.json", config.as_bytes());
    let manifest =
        serde_json::json!([{"Config": "config.json", "RepoTags": tags, "Layers": files}]);
    add("manifest.json", manifest.to_string().as_bytes());
    builder.into_inner().unwrap()
}

fn small() -> Vec<u8> {
    Tar::new().directory("bin").file("bin/sh").bytes()
}

fn nothing_kept() -> BTreeSet<String> {
    BTreeSet::new()
}

#[test]
fn what_docker_saves_is_an_image_with_its_names_layers_and_user() {
    let home = Home::new();
    let layers = [
        Tar::new()
            .text("etc/passwd", "app:x:7:8::/home/app:/bin/sh\n")
            .file("bin/sh")
            .bytes(),
        Tar::new().file("bin/.wh.sh").file("bin/other").bytes(),
    ];
    let config = config(&layers, r#""config":{"Env":["A=1"],"User":"app"},"#);
    let tar = home.saved(&["app:1", "r.example/app:2"], &config, &layers);
    let imported = home.import(&tar, None).unwrap();
    assert_eq!(imported[0].names, ["app:1", "r.example/app:2"]);
    assert_eq!(imported[0].id, Digest::of(config.as_bytes()));
    let name = Reference::parse("app:1").unwrap();
    let id = home.images.find(&name).unwrap().unwrap();
    let image = home.images.open(&id).unwrap().unwrap();
    // The topmost first.
    assert!(image.layers[0].join("bin/other").is_file());
    assert!(image.layers[1].join("bin/sh").is_file());
    assert_eq!(image.defaults.env["A"], "1");
    let user = image.defaults.user.clone().unwrap().unwrap();
    assert_eq!(
        (user.uid, user.gid, user.home.as_deref()),
        (7, 8, Some("/home/app"))
    );
    let (summary, text) = home.images.inspect(&id.short()[..8]).unwrap();
    assert_eq!(
        (summary.names.len(), summary.layers.len(), &*text),
        (2, 2, &*config)
    );
    // Again, it is the same.
    assert_eq!(home.import(&tar, Some("third:1")).unwrap()[0].id, id);
    assert_eq!(home.images.list().unwrap()[0].names.len(), 3);
}

#[test]
fn a_user_that_the_image_does_not_have_is_told_when_it_is_used() {
    let home = Home::new();
    let layers = [
        Tar::new()
            .text("etc/passwd", "app:x:7:8::/:/bin/sh\n")
            .bytes(),
        Tar::new().file("etc/.wh.passwd").bytes(),
    ];
    let tar = home.saved(
        &["app:1"],
        &config(&layers, r#""config":{"User":"app"},"#),
        &layers,
    );
    let id = home.import(&tar, None).unwrap().remove(0).id;
    let image = home.images.open(&id).unwrap().unwrap();
    assert!(image.defaults.user.unwrap_err().contains("no user"));
}

#[test]
fn an_oci_layout_is_verified_and_may_be_a_directory() {
    let home = Home::new();
    let layer = small();
    let config = config(std::slice::from_ref(&layer), "");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    io::Write::write_all(&mut packed, &layer).unwrap();
    let packed = packed.finish().unwrap();
    let layout = home.directory.path().join("layout");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |content: &[u8]| {
        let digest = Digest::of(content);
        fs::write(blobs.join(digest.hex()), content).unwrap();
        serde_json::json!({"digest": digest.to_string(), "size": content.len()})
    };
    let manifest = serde_json::json!({"config": put(config.as_bytes()), "layers": [put(&packed)]});
    let mut one = put(manifest.to_string().as_bytes());
    let mut write_index = |name: &str| {
        one["annotations"] = serde_json::json!({"org.opencontainers.image.ref.name": name});
        let index = serde_json::json!({"manifests": [one]});
        fs::write(layout.join("index.json"), index.to_string()).unwrap();
    };
    fs::write(layout.join("oci-layout"), "{}").unwrap();
    write_index("latest");
    let nameless = home.import(&layout, None).unwrap_err().to_string();
    assert!(nameless.contains("--name"), "{nameless}");
    assert_eq!(
        home.import(&layout, Some("app:1")).unwrap()[0].names,
        ["app:1"]
    );
    write_index("r.example/app:2");
    assert_eq!(
        home.import(&layout, None).unwrap()[0].names,
        ["r.example/app:2"]
    );
    // Content that is not what names it.
    fs::write(
        blobs.join(Digest::of(config.as_bytes()).hex()),
        format!("{config} "),
    )
    .unwrap();
    assert!(matches!(
        home.import(&layout, None),
        Err(ImageError::Digest { .. })
    ));
}

#[test]
fn a_root_filesystem_comes_as_a_directory_and_as_a_packed_tar() {
    let home = Home::new();
    let root = home.directory.path().join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::write(root.join("usr/bin/sh"), "x").unwrap();
    fs::hard_link(root.join("usr/bin/sh"), root.join("usr/bin/same")).unwrap();
    std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
    let long = "n".repeat(180);
    fs::write(root.join(&long), "long").unwrap();
    rustix::fs::setxattr(
        root.join(&long),
        "user.note",
        b"a\nb",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let one = home.import(&root, Some("mine:1")).unwrap().remove(0).id;
    let image = home.images.open(&one).unwrap().unwrap();
    let read = |name: &str| fs::read(image.layers[0].join(name)).unwrap();
    assert_eq!(
        (read("usr/bin/same"), read(&long)),
        (b"x".to_vec(), b"long".to_vec())
    );
    assert_eq!(
        fs::metadata(image.layers[0].join("usr/bin/sh"))
            .unwrap()
            .nlink(),
        2
    );
    let mut value = [0; 8];
    let path = image.layers[0].join(&long);
    assert_eq!(
        rustix::fs::getxattr(path, "user.note", &mut value[..]),
        Ok(3)
    );
    // The same directory is the same image.
    assert_eq!(home.import(&root, Some("mine:2")).unwrap()[0].id, one);
    let packed =
        ruzstd::encoding::compress_to_vec(&*small(), ruzstd::encoding::CompressionLevel::Fastest);
    let tar = home.file("root.tar.zst", &packed);
    assert!(
        home.import(&tar, None)
            .unwrap_err()
            .to_string()
            .contains("--name")
    );
    let id = home.import(&tar, Some("small:1")).unwrap().remove(0).id;
    assert_eq!(home.images.open(&id).unwrap().unwrap().layers.len(), 1);
    let none = home.directory.path().join("empty");
    fs::create_dir(&none).unwrap();
    assert!(
        home.import(&none, Some("none:1"))
            .unwrap_err()
            .to_string()
            .contains("no root filesystem")
    );
}

#[test]
fn a_layer_that_goes_through_a_link_of_a_lower_one_is_refused() {
    let home = Home::new();
    let lower = Tar::new()
        .directory("usr")
        .file("usr/sh")
        .symlink("lib", "usr")
        .bytes();
    for (upper, good) in [
        (Tar::new().file("lib/evil"), false),
        (Tar::new().file("lib/deeper/evil"), false),
        (Tar::new().file("usr/sh/evil"), false),
        // It says itself that it is a directory: then it takes the link's place.
        (Tar::new().directory("lib").file("lib/good"), true),
        (Tar::new().file(".wh.lib").file("lib/good"), true),
        (Tar::new().file("usr/good"), true),
    ] {
        let layers = [lower.clone(), upper.bytes()];
        let tar = home.saved(&["app:1"], &config(&layers, ""), &layers);
        match home.import(&tar, None) {
            Ok(_) => assert!(good),
            Err(error) => {
                assert!(
                    !good && error.to_string().contains("a layer below"),
                    "{error}"
                );
                assert_eq!(
                    home.images
                        .find(&Reference::parse("app:1").unwrap())
                        .unwrap(),
                    None
                );
            }
        }
        home.images.remove("app:1", &nothing_kept()).ok();
    }
}

#[test]
fn what_is_refused_leaves_no_part_of_an_image() {
    let home = Home::new();
    let good = small();
    let bounds = Bounds {
        entries: 10,
        bytes: 10_000,
        depth: 10,
    };
    let bounded = Home {
        images: home.images.clone().bounded(bounds),
        directory: tempfile::tempdir().unwrap(),
    };
    let mut many = Tar::new();
    for number in 0..11 {
        many = many.file(&number.to_string());
    }
    let hostile = [
        Tar::new().file("../evil").bytes(),
        Tar::new().file("/evil").bytes(),
        Tar::new().symlink("a", "/").file("a/evil").bytes(),
        Tar::new().hard_link("a", "/etc/passwd").bytes(),
        Tar::new()
            .add(tar::EntryType::Char, "disk", "", b"")
            .bytes(),
        Tar::new()
            .add(tar::EntryType::Regular, "large", "", &[0; 20_000])
            .bytes(),
        many.bytes(),
    ];
    for layer in hostile {
        let layers = [good.clone(), layer];
        let tar = bounded.saved(&["app:1"], &config(&layers, ""), &layers);
        let error = bounded.import(&tar, None).unwrap_err();
        assert!(matches!(error, ImageError::Layer { .. }), "{error}");
        bounded
            .images
            .collect(&nothing_kept(), Duration::ZERO)
            .unwrap();
        assert_eq!(bounded.left(), Vec::<PathBuf>::new(), "{error}");
    }
    // A layer that is not what the configuration says.
    let layers = [good.clone()];
    let wrong = home.saved(&["app:1"], &config(&[Tar::new().bytes()], ""), &layers);
    assert!(matches!(
        home.import(&wrong, None),
        Err(ImageError::Digest { .. })
    ));
    let more = home.saved(
        &["app:1"],
        &config(&[good.clone(), good.clone()], ""),
        &layers,
    );
    assert!(matches!(
        home.import(&more, None),
        Err(ImageError::Useless(_))
    ));
    let foreign = home.saved(&["app:1"], &config(&layers, r#""os":"plan9","#), &layers);
    assert!(
        home.import(&foreign, None)
            .unwrap_err()
            .to_string()
            .contains("plan9")
    );
    assert_eq!(home.left(), Vec::<PathBuf>::new());
    for garbage in [&b"no archive"[..], b"", &[0x1f, 0x8b, 1, 2]] {
        let path = home.file("garbage", garbage);
        assert!(home.import(&path, Some("garbage:1")).is_err());
        assert_eq!(home.left(), Vec::<PathBuf>::new());
    }
}

#[test]
fn links_in_an_archive_lead_nowhere_else() {
    let home = Home::new();
    home.file("outside", b"secret");
    let layout = home.directory.path().join("saved");
    fs::create_dir(&layout).unwrap();
    for (config, layer) in [
        ("../outside", "layer"),
        ("config", "../outside"),
        ("config", "link"),
    ] {
        let manifest =
            serde_json::json!([{"Config": config, "RepoTags": ["a:1"], "Layers": [layer]}]);
        fs::write(layout.join("manifest.json"), manifest.to_string()).unwrap();
        fs::write(layout.join("config"), super::tests::config(&[small()], "")).unwrap();
        fs::remove_file(layout.join("link")).ok();
        std::os::unix::fs::symlink("../outside", layout.join("link")).unwrap();
        let error = home.import(&layout, None).unwrap_err().to_string();
        assert!(error.contains("it has no file"), "{error}");
    }
}

#[test]
fn images_go_with_their_last_name_unless_they_are_in_use() {
    let home = Home::new();
    let shared = small();
    let own = Tar::new().file("own").bytes();
    let one = [shared.clone()];
    let two = [shared, own];
    for (tags, layers) in [(&["one:1"][..], &one[..]), (&["two:1", "two:2"], &two)] {
        let tar = home.saved(tags, &config(layers, ""), layers);
        home.import(&tar, None).unwrap();
    }
    let images = &home.images;
    let none = nothing_kept();
    assert_eq!(images.remove("two:1", &none).unwrap(), Removed::default());
    let id = images.look_up("two:2").unwrap();
    let kept = BTreeSet::from([id.to_string()]);
    assert!(matches!(
        images.remove("two:2", &kept),
        Err(ImageError::InUse { .. })
    ));
    let held = images.open(&id).unwrap().unwrap();
    assert!(matches!(
        images.remove("two:2", &none),
        Err(ImageError::InUse { .. })
    ));
    assert!(held.layers[0].join("own").is_file());
    drop(held);
    let removed = images.remove("two:2", &none).unwrap();
    assert_eq!((removed.images, removed.layers), (1, 1));
    assert!(matches!(
        images.remove("two:2", &none),
        Err(ImageError::Unknown(_))
    ));
    // The layer of the other one stayed.
    let id = images.look_up("one:1").unwrap();
    assert!(
        images.open(&id).unwrap().unwrap().layers[0]
            .join("bin/sh")
            .is_file()
    );
}

#[test]
fn a_name_that_moved_leaves_an_image_that_is_collected_when_nobody_uses_it() {
    let home = Home::new();
    let old = [small()];
    let new = [Tar::new().file("bin/new").bytes()];
    home.import(&home.saved(&["app:1"], &config(&old, ""), &old), None)
        .unwrap();
    let id = home.images.look_up("app:1").unwrap();
    let held = home.images.open(&id).unwrap();
    home.import(&home.saved(&["app:1"], &config(&new, ""), &new), None)
        .unwrap();
    let collect = |kept: &BTreeSet<String>| home.images.collect(kept, Duration::ZERO).unwrap();
    assert_eq!(collect(&nothing_kept()), Removed::default());
    drop(held);
    assert_eq!(
        collect(&BTreeSet::from([id.to_string()])),
        Removed::default()
    );
    let removed = collect(&nothing_kept());
    assert_eq!((removed.images, removed.layers), (1, 1));
    assert!(home.images.open(&id).unwrap().is_none());
}

#[test]
fn halves_are_kept_for_a_while_and_no_longer() {
    let home = Home::new();
    let blobs = home.images.home.join("blobs");
    locks::private(&blobs).unwrap();
    fs::write(blobs.join("half"), b"x").unwrap();
    let written = fs::metadata(blobs.join("half")).unwrap().mtime();
    let written = Duration::from_secs(written.try_into().unwrap());
    let week = Duration::from_secs(crate::limits::IMAGE_PARTIAL_KEPT_SECONDS);
    assert_eq!(
        home.images
            .tidy(written + week - Duration::from_secs(60))
            .unwrap(),
        0
    );
    let fetching = locks::take(&home.images.home, "blob-half", &Cancel::default()).unwrap();
    assert_eq!(home.images.tidy(written + week * 2).unwrap(), 0);
    drop(fetching);
    // Nor does a layer whose image never came.
    let layer = small();
    home.images
        .add_layer(&Digest::of(&layer), &*layer, 1, &Cancel::default())
        .unwrap();
    assert_eq!(
        home.images.tidy(written + Duration::from_secs(60)).unwrap(),
        0
    );
    assert_eq!(home.images.tidy(written + week * 2).unwrap(), 2);
    assert_eq!(home.left(), Vec::<PathBuf>::new());
}
