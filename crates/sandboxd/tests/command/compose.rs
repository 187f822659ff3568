//! The Compose file of `packaging`, read strictly: what is not understood here is an error, so that no line of it goes
//! untested. Only as much of YAML as the file uses: maps, lists of texts, comments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a key has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Text(String),
    List(Vec<String>),
    Map(Vec<(String, Node)>),
}

/// The file's one service, as words for `docker run`, and what has to be there first.
#[derive(Debug)]
pub(crate) struct Composed {
    /// The words, the image last.
    pub(crate) run: Vec<String>,
    /// Networks, each with more words for its making.
    pub(crate) networks: Vec<(String, Vec<String>)>,
    /// Volumes, each with where it is mounted.
    pub(crate) volumes: Vec<(String, String)>,
}

/// Reads it; `project` begins the names of what is made for it, and `variables` are what the environment says.
pub(crate) fn composed(
    file: &Path,
    project: &str,
    variables: &BTreeMap<&str, String>,
) -> Result<Composed, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let top = map(&parse(&text, variables)?, "the file")?;
    known(&top, &["services", "networks", "volumes", "secrets"])?;
    let services = map(get(&top, "services")?, "services")?;
    let [(name, service)] = &services[..] else {
        return Err("one service is expected".to_owned());
    };
    let networks = named(&top, "networks", project, |own| {
        known(own, &["internal"])?;
        match get(own, "internal") {
            Ok(node) if text_of(node)? == "true" => Ok(vec!["--internal".to_owned()]),
            Ok(node) => Err(format!("internal: {node:?}")),
            Err(_) => Ok(Vec::new()),
        }
    })?;
    let volumes = named(&top, "volumes", project, |own| known(own, &[]))?;
    let beside = file.parent().unwrap_or(Path::new("/"));
    let secrets = named(&top, "secrets", "", |own| {
        known(own, &["file"])?;
        Ok(beside.join(text_of(get(own, "file")?)?))
    })?;
    let mut reading = Reading {
        project,
        made: (&networks, &volumes, &secrets),
        words: vec![format!("--network-alias={name}")],
        image: None,
        mounted: Vec::new(),
    };
    for (key, node) in map(service, name)? {
        reading.key(&key, &node)?;
    }
    let mut run = reading.words;
    run.push(reading.image.ok_or("no image")?);
    Ok(Composed {
        run,
        volumes: reading.mounted,
        networks,
    })
}

type Made<T> = Vec<(String, T)>;

struct Reading<'a> {
    project: &'a str,
    made: (&'a Made<Vec<String>>, &'a Made<()>, &'a Made<PathBuf>),
    words: Vec<String>,
    image: Option<String>,
    mounted: Vec<(String, String)>,
}

impl Reading<'_> {
    fn key(&mut self, key: &str, node: &Node) -> Result<(), String> {
        let (networks, volumes, secrets) = self.made;
        match key {
            "image" => self.image = Some(text_of(node)?),
            "restart" => self.words.push(format!("--restart={}", text_of(node)?)),
            "stop_grace_period" => {
                let text = text_of(node)?;
                let seconds = text.strip_suffix('s').ok_or("seconds are expected")?;
                self.words.push(format!("--stop-timeout={seconds}"));
            }
            "user" => self.words.push(format!("--user={}", text_of(node)?)),
            "read_only" if text_of(node)? == "true" => self.words.push("--read-only".to_owned()),
            "cap_drop" | "cap_add" | "security_opt" | "group_add" => {
                let flag = key.replace('_', "-");
                let each = list(node)?.into_iter();
                self.words
                    .extend(each.map(|value| format!("--{flag}={value}")));
            }
            "environment" => {
                for (name, value) in map(node, key)? {
                    let value = text_of(&value)?;
                    self.words.push(format!("--env={name}={value}"));
                }
            }
            "secrets" => {
                for name in list(node)? {
                    let file = of(secrets, &name)?.display();
                    let inside = format!("/run/secrets/{name}");
                    self.words.push(format!("--volume={file}:{inside}:ro"));
                }
            }
            "volumes" => {
                for mount in list(node)? {
                    let (source, inside) = mount.split_once(':').ok_or("source:target")?;
                    if source.starts_with('/') {
                        self.words.push(format!("--volume={mount}"));
                        continue;
                    }
                    let name = prefixed(self.project, source);
                    of(volumes, &name)?;
                    self.words.push(format!("--volume={name}:{inside}"));
                    self.mounted.push((name, inside.to_owned()));
                }
            }
            "networks" => {
                for name in list(node)? {
                    let name = prefixed(self.project, &name);
                    of(networks, &name)?;
                    self.words.push(format!("--network={name}"));
                }
            }
            other => return Err(format!("{other}: {node:?} is not understood here")),
        }
        Ok(())
    }
}

fn prefixed(project: &str, name: &str) -> String {
    match project {
        "" => name.to_owned(),
        project => format!("{project}_{name}"),
    }
}

/// The entries of a top-level map, by their names on the engine.
fn named<T>(
    top: &[(String, Node)],
    key: &str,
    project: &str,
    read: impl Fn(&[(String, Node)]) -> Result<T, String>,
) -> Result<Made<T>, String> {
    let entries = map(get(top, key)?, key)?.into_iter();
    let made = entries.map(|(name, node)| {
        let own = match node {
            Node::Text(text) if text.is_empty() => Vec::new(),
            node => map(&node, &name)?,
        };
        Ok((prefixed(project, &name), read(&own)?))
    });
    made.collect()
}

fn of<'a, T>(made: &'a Made<T>, name: &str) -> Result<&'a T, String> {
    let found = made.iter().find(|(known, _)| known == name);
    let (_, found) = found.ok_or_else(|| format!("{name} is not declared"))?;
    Ok(found)
}

fn known(own: &[(String, Node)], keys: &[&str]) -> Result<(), String> {
    match own.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
        Some((key, _)) => Err(format!("{key} is not understood here")),
        None => Ok(()),
    }
}

fn get<'a>(own: &'a [(String, Node)], key: &str) -> Result<&'a Node, String> {
    let found = own.iter().find(|(known, _)| known == key);
    found
        .map(|(_, node)| node)
        .ok_or_else(|| format!("no {key}"))
}

fn map(node: &Node, what: &str) -> Result<Vec<(String, Node)>, String> {
    match node {
        Node::Map(entries) => Ok(entries.clone()),
        other => Err(format!("{what}: {other:?} is no map")),
    }
}

fn list(node: &Node) -> Result<Vec<String>, String> {
    match node {
        Node::List(entries) => Ok(entries.clone()),
        other => Err(format!("{other:?} is no list")),
    }
}

fn text_of(node: &Node) -> Result<String, String> {
    match node {
        Node::Text(text) => Ok(text.clone()),
        other => Err(format!("{other:?} is no text")),
    }
}

fn parse(text: &str, variables: &BTreeMap<&str, String>) -> Result<Node, String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if content.contains(" #") || line.contains('\t') {
            return Err(format!("a comment stands on a line of its own: {line}"));
        }
        lines.push((line.len() - content.len(), content.trim_end()));
    }
    let mut rest = &lines[..];
    let node = block(&mut rest, variables)?;
    match rest.first() {
        Some((_, line)) => Err(format!("wrongly indented: {line}")),
        None => Ok(node),
    }
}

fn block(rest: &mut &[(usize, &str)], variables: &BTreeMap<&str, String>) -> Result<Node, String> {
    let Some((indent, first)) = rest.first().copied() else {
        return Err("nothing there".to_owned());
    };
    let is_list = first.starts_with("- ");
    let (mut items, mut entries) = (Vec::new(), Vec::new());
    while let Some((_, line)) = rest.first().copied().filter(|(at, _)| *at == indent) {
        *rest = &rest[1..];
        if is_list {
            let item = line.strip_prefix("- ").ok_or("a list goes on as one")?;
            items.push(scalar(item, variables)?);
            continue;
        }
        let (key, value) = line
            .split_once(':')
            .ok_or_else(|| format!("no key: {line}"))?;
        let value = value.trim();
        let deeper = rest.first().is_some_and(|(at, _)| *at > indent);
        let node = match value.strip_prefix('[') {
            _ if value.is_empty() && deeper => block(rest, variables)?,
            Some(inner) => {
                let inner = inner.strip_suffix(']').ok_or("a list ends on its line")?;
                let each = inner.split(',').map(|one| scalar(one.trim(), variables));
                Node::List(each.collect::<Result<_, _>>()?)
            }
            None => Node::Text(scalar(value, variables)?),
        };
        if entries.iter().any(|(known, _)| known == key) {
            return Err(format!("{key} twice"));
        }
        entries.push((key.to_owned(), node));
    }
    Ok(match is_list {
        true => Node::List(items),
        false => Node::Map(entries),
    })
}

/// A text without its quotes, with `${NAME:-otherwise}` put in.
fn scalar(text: &str, variables: &BTreeMap<&str, String>) -> Result<String, String> {
    let text = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').ok_or("a quote without its end")?,
        None => text,
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inner, after) = after.split_once('}').ok_or("a variable without its end")?;
        let (name, otherwise) = inner.split_once(":-").ok_or("a variable has a default")?;
        out.push_str(before);
        out.push_str(variables.get(name).map_or(otherwise, String::as_str));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[test]
fn what_is_not_understood_is_no_compose_file() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("compose.yaml");
    let sound = "services:\n  one:\n    image: ${X:-i}\n    networks: [n]\n    environment:\n      A: b\nnetworks:\n  n:\n    internal: true\nvolumes:\n  v:\nsecrets:\n  s:\n    file: ./s\n";
    let read = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        composed(&file, "p", &BTreeMap::from([("X", "mine".to_owned())]))
    };
    let found = read(sound).expect("it is sound");
    assert_eq!(
        found.run,
        ["--network-alias=one", "--network=p_n", "--env=A=b", "mine"]
    );
    assert_eq!(
        found.networks,
        [("p_n".to_owned(), vec!["--internal".to_owned()])]
    );
    for (part, other) in [
        ("    networks: [n]", "    networks: [other]"),
        ("    networks: [n]", "    ports: [\"8080:8080\"]"),
        ("    networks: [n]", "    privileged: true"),
        ("    internal: true", "    driver: macvlan"),
        ("image: ${X:-i}", "image: ${X}"),
        ("      A: b", "      A: b\n      A: c"),
    ] {
        let text = sound.replace(part, other);
        assert_ne!(text, sound, "{part}");
        assert!(read(&text).is_err(), "{other}");
    }
}
