//! A very small shell: words with quotes and `$NAME`, `;` `&&` `||` and new lines, `>` `>>` `>&2` at the end of a
//! command, and the builtins `exit`, `cd`, `export` and `:`. No pipes, no jobs, no globs.

use super::programs::{self, Redirect, World};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What a script is cut into.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `;` or a new line.
    Then,
    And,
    Or,
    ToStderr,
    ToFile {
        append: bool,
    },
}

/// Runs a script to its exit code.
pub(super) async fn run(script: &str, world: &World) -> u8 {
    let mut world = world.clone();
    let mut last = 0;
    let mut skip = false;
    let mut rest = script;
    // Cut as it goes, so that a variable has the value of its moment.
    loop {
        let (command, end, after) = match next_command(rest, &world.env, last) {
            Ok(Some(next)) => next,
            Ok(None) => return last,
            Err(message) => {
                world.stderr(format!("sh: {message}\n")).await;
                return 2;
            }
        };
        rest = after;
        if !skip && !command.is_empty() {
            match simple(&command, &mut world).await {
                Flow::On(code) => last = code,
                Flow::Exit(code) => return code.unwrap_or(last),
            }
        }
        skip = match end {
            Token::And => last != 0,
            Token::Or => last == 0,
            _ => false,
        };
    }
}

enum Flow {
    On(u8),
    Exit(Option<u8>),
}

async fn simple(command: &[Token], world: &mut World) -> Flow {
    let mut words = Vec::new();
    let mut target: Option<(String, bool)> = None;
    let mut redirect = world.redirect.clone();
    let mut tokens = command.iter();
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(word) => words.push(word.clone()),
            Token::ToStderr => redirect = Redirect::ToStderr,
            Token::ToFile { append } => match tokens.next() {
                Some(Token::Word(path)) => target = Some((path.clone(), *append)),
                _ => return Flow::On(syntax(world, "a file name is missing").await),
            },
            Token::Then | Token::And | Token::Or => {}
        }
    }
    let Some((name, args)) = words.split_first() else {
        return Flow::On(0);
    };
    match name.as_str() {
        "exit" => return Flow::Exit(args.first().map(|code| code.parse().unwrap_or(2))),
        ":" => return Flow::On(0),
        "cd" => {
            let to = args.first().map_or("/", String::as_str);
            let path = world.files.absolute(&world.cwd, to);
            if world.files.is_dir(&path) {
                world.cwd = path;
                return Flow::On(0);
            }
            world
                .stderr(format!("sh: cd: {to}: no such directory\n"))
                .await;
            return Flow::On(2);
        }
        "export" => {
            for (name, value) in args.iter().filter_map(|arg| arg.split_once('=')) {
                world.env.insert(name.to_owned(), value.to_owned());
            }
            return Flow::On(0);
        }
        _ => {}
    }
    let Some(program) = programs::find(name) else {
        world.stderr(format!("sh: {name}: not found\n")).await;
        return Flow::On(127);
    };
    let collected = target.as_ref().map(|_| std::sync::Arc::default());
    let redirect = match &collected {
        Some(content) => Redirect::Collected(std::sync::Arc::clone(content)),
        None => redirect,
    };
    let inner = World {
        redirect,
        ..world.clone()
    };
    let code = programs::run(program, args, &inner).await;
    if let (Some((path, append)), Some(content)) = (target, collected) {
        let content = {
            let mut content = content
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::take(&mut *content)
        };
        if let Err(error) = store(world, &path, append, content) {
            world.stderr(format!("sh: {path}: {error}\n")).await;
            return Flow::On(2);
        }
    }
    Flow::On(code)
}

fn store(
    world: &World,
    path: &str,
    append: bool,
    content: Vec<u8>,
) -> Result<(), sandboxd_protocol::message::FileError> {
    let path = world.files.absolute(&world.cwd, path);
    let mut whole = Vec::new();
    if append && let Ok(old) = world.files.read(&path) {
        whole.extend_from_slice(&old);
    }
    whole.extend(content);
    world.files.write(&path, Bytes::from(whole), 0o644, false)
}

async fn syntax(world: &World, what: &str) -> u8 {
    world.stderr(format!("sh: syntax error: {what}\n")).await;
    2
}

type Command<'a> = (Vec<Token>, Token, &'a str);

/// The tokens of the next command, what ends it, and the rest of the script.
fn next_command<'a>(
    script: &'a str,
    env: &BTreeMap<String, String>,
    last: u8,
) -> Result<Option<Command<'a>>, String> {
    if script.trim().is_empty() {
        return Ok(None);
    }
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = script.char_indices().peekable();
    let flush = |word: &mut Option<String>, tokens: &mut Vec<Token>| {
        tokens.extend(word.take().map(Token::Word));
    };
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some((_, '\'')) => break,
                        Some((_, c)) => word.push(c),
                        None => return Err("a quote is not closed".to_owned()),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some((_, '"')) => break,
                        Some((_, '$')) => variable(&mut chars, env, last, word),
                        Some((_, '\\')) => word.extend(chars.next().map(|(_, c)| c)),
                        Some((_, c)) => word.push(c),
                        None => return Err("a quote is not closed".to_owned()),
                    }
                }
            }
            '$' => variable(&mut chars, env, last, word.get_or_insert_default()),
            '\\' => word
                .get_or_insert_default()
                .extend(chars.next().map(|(_, c)| c)),
            ';' | '\n' => {
                flush(&mut word, &mut tokens);
                return Ok(Some((tokens, Token::Then, &script[at + 1..])));
            }
            '&' if next == Some('&') => {
                flush(&mut word, &mut tokens);
                return Ok(Some((tokens, Token::And, &script[at + 2..])));
            }
            '|' if next == Some('|') => {
                flush(&mut word, &mut tokens);
                return Ok(Some((tokens, Token::Or, &script[at + 2..])));
            }
            '&' | '|' | '`' | '(' | ')' | '<' => {
                return Err(format!("{c:?} is not known here"));
            }
            '>' => {
                // `2>` is `>` for the other stream, which this shell does not have.
                flush(&mut word, &mut tokens);
                match next {
                    Some('>') => {
                        chars.next();
                        tokens.push(Token::ToFile { append: true });
                    }
                    Some('&') => {
                        chars.next();
                        match chars.next() {
                            Some((_, '2')) => tokens.push(Token::ToStderr),
                            _ => return Err("only >&2 is known here".to_owned()),
                        }
                    }
                    _ => tokens.push(Token::ToFile { append: false }),
                }
            }
            ' ' | '\t' => flush(&mut word, &mut tokens),
            c => word.get_or_insert_default().push(c),
        }
    }
    flush(&mut word, &mut tokens);
    Ok(Some((tokens, Token::Then, "")))
}

fn variable(
    chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>,
    env: &BTreeMap<String, String>,
    last: u8,
    word: &mut String,
) {
    let mut name = String::new();
    if chars.next_if(|(_, c)| *c == '?').is_some() {
        word.push_str(&last.to_string());
        return;
    }
    while let Some((_, c)) = chars.next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '_') {
        name.push(c);
    }
    match env.get(&name) {
        _ if name.is_empty() => word.push('$'),
        Some(value) => word.push_str(value),
        None => {}
    }
}
