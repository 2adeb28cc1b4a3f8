//! Objects that are not what the manifest says, or no longer.

use std::fs;
use std::path::Path;

use hds_loader::{Fetch, Split, TokensMut};

use crate::reader::{Task, next, pieces, small_index};
use crate::servers::Nginx;

fn flip(path: &Path, place: usize) {
    let mut content = fs::read(path).unwrap();
    // The low bit of the low byte: the id stays one of the vocabulary.
    content[place] ^= 1;
    fs::write(path, content).unwrap();
}

/// Reads all training tokens of a domain; the error, if there is one.
pub fn read_all(task: &Task, domain: &str) -> Result<(), String> {
    let index = task.open().map_err(|e| e.to_string())?;
    let domain = index.domains().find(domain).unwrap();
    let stream = index.split(domain, Split::Train);
    let mut ids = vec![0i64; stream.tokens() as usize];
    stream
        .read(0, TokensMut::I64(&mut ids))
        .map_err(|e| e.to_string())
}

#[test]
fn a_flipped_byte_on_the_server_is_found_before_it_is_used_or_when_the_file_is_whole() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let tokens = files.train_file("Books", 1, "tokens");
    let at = 3 * 4096 + 100;
    flip(&tokens, at);
    for fetch in [Fetch::Files, Fetch::Pieces] {
        let cache = tempfile::tempdir().unwrap();
        let task = Task {
            fetch,
            ..Task::new(server.url(""), cache.path())
        };
        let text = read_all(&task, "Books").unwrap_err();
        assert!(
            text.contains("00001.tokens: its pieces do not add up"),
            "{text}"
        );
        assert!(text.contains(&server.url("")), "{text}");
        // Another domain is as good as ever, and so is this one after the repair.
        read_all(&task, "web").unwrap();
        flip(&tokens, at);
        read_all(&task, "Books").unwrap();
        flip(&tokens, at);
    }
    // Nothing of the file is handed out where it must be whole first.
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        fetch: Fetch::Files,
        ..Task::new(server.url(""), cache.path())
    };
    let index = task.open().unwrap();
    let books = index.split(index.domains().find("Books").unwrap(), Split::Train);
    let mut one = [0i64];
    books.read(0, TokensMut::I64(&mut one)).unwrap();
    let last = books.tokens() - 1;
    assert!(books.read(last, TokensMut::I64(&mut one)).is_err());
    // And once a file is known whole, each piece is held against it by itself.
    flip(&tokens, at);
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    read_all(&task, "Books").unwrap();
    flip(&tokens, at);
    for (path, _) in pieces(cache.path()) {
        fs::remove_file(path).unwrap();
    }
    let text = read_all(&task, "Books").unwrap_err();
    assert!(text.contains("bytes 12288..16384 do not have"), "{text}");
}

#[test]
fn an_object_that_changes_while_it_is_read_is_an_error() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let task = Task {
        read_ahead: 0,
        ..Task::new(server.url(""), cache.path())
    };
    let (mut loader, live) = task.loader().unwrap();
    next(&mut loader, &live).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(7);
    for domain in ["Books", "Wikipedia (en)", "web"] {
        let path = files.train_file(domain, 0, "tokens");
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(later).unwrap();
    }
    let text = (0..300)
        .find_map(|_| next(&mut loader, &live).err())
        .unwrap()
        .to_string();
    assert!(
        text.contains("was changed since it was first read"),
        "{text}"
    );
    assert!(text.contains("00000.tokens"), "{text}");
}

#[test]
fn an_object_of_another_size_or_none_at_all_is_an_error() {
    let files = small_index();
    let Some(server) = Nginx::start(files.path(), "") else {
        return;
    };
    let path = files.train_file("web", 0, "tokens");
    let good = fs::read(&path).unwrap();
    let longer = [good.as_slice(), &[0; 9]].concat();
    for (content, want) in [
        (longer.as_slice(), "the manifest says"),
        (&good[..good.len() - 2], "the manifest says"),
        (&good[..10], "the manifest says"),
        (&[], "or the object is empty"),
    ] {
        fs::write(&path, content).unwrap();
        let cache = tempfile::tempdir().unwrap();
        let text = read_all(&Task::new(server.url(""), cache.path()), "web").unwrap_err();
        assert!(text.contains(want), "{text}");
        assert!(text.contains("web/train/00000.tokens"), "{text}");
    }
    fs::remove_file(&path).unwrap();
    let cache = tempfile::tempdir().unwrap();
    let task = Task::new(server.url(""), cache.path());
    let text = read_all(&task, "web").unwrap_err();
    assert!(text.contains("there is no such object"), "{text}");
    let text = Task::new(server.url("elsewhere"), cache.path())
        .run()
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("/elsewhere/manifest.json: there is no index"),
        "{text}"
    );
    fs::write(files.path().join("manifest.json"), "{}").unwrap();
    let text = task.run().unwrap_err().to_string();
    assert!(text.contains("/manifest.json has format unknown"), "{text}");
}
