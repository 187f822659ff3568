//! Images of the same files in few and in many layers.

use super::{Cost, opening};
use crate::bench::place::{Bench, import, own_folder};
use crate::bench::service::Service;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Of the file in each layer.
const FILE_BYTES: usize = 4096;

/// What opening costs over the number of layers; and making such an image ready.
pub(super) fn layers(bench: &Bench, counts: &[usize]) -> anyhow::Result<Vec<Cost>> {
    let folder = own_folder("layers")?;
    let measured = in_folder(bench, counts, &folder);
    fs::remove_dir_all(&folder)?;
    measured
}

fn in_folder(bench: &Bench, counts: &[usize], folder: &Path) -> anyhow::Result<Vec<Cost>> {
    let mut importing = Cost::of("importing an image");
    let runtimes: Vec<String> = counts
        .iter()
        .map(|count| format!("l{count}=layers:{count}"))
        .collect();
    let runtimes = runtimes.join(",");
    let settings = [("SANDBOXD_RUNTIMES", runtimes.as_str())];
    let service = Service::start_prepared(&bench.binary, &settings, |state| {
        for count in counts {
            let layout = folder.join(count.to_string());
            layout_of(&layout, *count)?;
            let began = Instant::now();
            import(&bench.binary, state, &layout, &format!("layers:{count}"))?;
            let took = began.elapsed().as_secs_f64() * 1e3;
            importing.points.push((super::number(*count), took));
        }
        Ok(())
    })?;
    let mut connection = service.connect()?;
    let mut cost = Cost::of("POST /sessions");
    for count in counts {
        let runtime = format!("l{count}");
        opening(bench, &mut connection, &mut cost, *count, &runtime)?;
    }
    Ok(vec![cost, importing])
}

/// An image of so many layers, as an OCI layout; each layer has a file of its own.
fn layout_of(layout: &Path, count: usize) -> anyhow::Result<()> {
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    let (mut layers, mut contents) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut layer = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(FILE_BYTES)?);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let content = vec![b'x'; FILE_BYTES];
        layer.append_data(
            &mut header,
            format!("layer-{number}-of-{count}"),
            &content[..],
        )?;
        let blob = blob(
            layout,
            "application/vnd.oci.image.layer.v1.tar",
            &layer.into_inner()?,
        )?;
        contents.push(blob["digest"].clone());
        layers.push(blob);
    }
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": contents },
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(layout, "application/vnd.oci.image.config.v1+json", &config)?,
        "layers": layers,
    });
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = blob(layout, kind, &serde_json::to_vec(&manifest)?)?;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    Ok(())
}

/// Keeps a blob; its descriptor.
fn blob(layout: &Path, kind: &str, content: &[u8]) -> anyhow::Result<Value> {
    let digest: String = Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    fs::write(layout.join("blobs/sha256").join(&digest), content)?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": content.len() }))
}
