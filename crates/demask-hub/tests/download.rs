//! Downloads from a hub that misbehaves. Tests that stand for a case are named after it.
#![allow(clippy::unwrap_used, missing_docs)]

mod fake_hub;
mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use demask_hub::{Error, Hub};
use fake_hub::{Action, COMMIT, Entry, FakeHub, answer, blob, sha256};
use support::{Place, name};

const FILE: &str = "model.Q4_K_M.gguf";

fn hub_with(bytes: &[u8]) -> FakeHub {
    let hub = FakeHub::start();
    hub.file("o/r", FILE, bytes);
    hub
}

#[test]
fn a_model_lands_as_the_other_tools_lay_it_out() {
    let bytes = blob(1, 100_000);
    let hub = hub_with(&bytes);
    let place = Place::new(&hub.url);
    let (found, events) = place.pull("o/r");
    let found = found.unwrap();
    assert_eq!(found.model.to_string(), "o/r:Q4_K_M");
    assert_eq!(std::fs::read(&found.files[0]).unwrap(), bytes);
    let etag = sha256(&bytes);
    assert_eq!(place.repo_tree(), [format!("blobs/{etag}"), "refs/main".into(), format!("snapshots/{COMMIT}/{FILE}")]);
    assert_eq!(std::fs::read_to_string(place.cache().join("models--o--r/refs/main")).unwrap(), COMMIT);
    #[cfg(unix)]
    assert_eq!(std::fs::read_link(&found.files[0]).unwrap().to_str().unwrap(), format!("../../blobs/{etag}"));
    assert!(events.last().unwrap().contains("verified: true"), "{events:?}");

    // Again: nothing is fetched, nothing is hashed.
    hub.clear_log();
    let (again, events) = place.pull("o/r:q4_k_m");
    assert_eq!(again.unwrap().files, found.files);
    assert!(hub.log().iter().all(|request| !request.is_data()), "{:?}", hub.log());
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn all_parts_of_a_split_model_come_together() {
    let hub = FakeHub::start();
    for part in 1..=3 {
        hub.file("o/r", &format!("Q8_0/m-Q8_0-0000{part}-of-00003.gguf"), &blob(part, 5000 + part as usize));
    }
    let place = Place::new(&hub.url);
    let found = place.pull("o/r").0.unwrap();
    assert_eq!(found.files.len(), 3);
    for (part, path) in (1..).zip(&found.files) {
        assert_eq!(std::fs::read(path).unwrap(), blob(part, 5000 + part as usize));
    }
    assert_eq!(place.hub().find(&name("o/r:Q8_0")).unwrap(), found);
    std::fs::remove_file(&found.files[1]).unwrap();
    assert_eq!(place.hub().find(&name("o/r:Q8_0")), None, "a part is missing");
}

#[test]
fn revisions_are_kept_apart() {
    let hub = hub_with(&blob(1, 1000));
    let place = Place::new(&hub.url);
    let first = place.pull("o/r").0.unwrap();
    let commit = "f".repeat(40);
    hub.commit("o/r", &commit);
    hub.file("o/r", FILE, &blob(2, 1000));
    let second = place.pull("o/r").0.unwrap();
    assert_eq!(std::fs::read(&second.files[0]).unwrap(), blob(2, 1000));
    assert_eq!(place.hub().find(&name("o/r")).unwrap().commit, commit);
    assert_eq!(place.hub().find(&name(&format!("o/r@{COMMIT}"))).unwrap().files, first.files);
    let error = place.pull("o/r@v9").0.unwrap_err();
    assert!(error.to_string().contains("o/r at revision v9"), "{error}");
}

#[test]
fn e17_a_cut_download_is_never_taken_as_whole_and_goes_on() {
    let bytes = blob(3, 500_000);
    let hub = hub_with(&bytes);
    let mut place = Place::new(&hub.url);
    place.settings.patience.tries = 1;
    hub.hook(|request, _| if request.is_data() { Action::Cut(300_000) } else { Action::Normal });
    let error = place.pull("o/r").0.unwrap_err();
    assert!(matches!(error, Error::Interrupted { done: 300_000, size: 500_000, .. }), "{error}");
    assert_eq!(place.repo_tree(), [format!("blobs/{}.incomplete", sha256(&bytes))]);
    assert!(place.hub().find(&name("o/r")).is_none() && place.hub().cache().models().is_empty());
    assert_eq!(place.hub().cache().unfinished().len(), 1);

    hub.clear_log();
    hub.hook(|_, _| Action::Normal);
    let found = place.pull("o/r").0.unwrap();
    let data: Vec<_> = hub.log().into_iter().filter(fake_hub::Request::is_data).collect();
    assert_eq!(data.iter().map(fake_hub::Request::from).collect::<Vec<_>>(), [300_000], "continues");
    assert_eq!(sha256(&std::fs::read(&found.files[0]).unwrap()), sha256(&bytes));
}

/// The bar: 200 interruptions at random bytes, some survived in the process, some by a later one.
#[test]
fn e17_two_hundred_interruptions_leave_no_corrupt_file_and_never_start_over() {
    let (mut cuts, mut restarts, mut corrupt, mut seed) = (0, 0, 0, 7u64);
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut round = 0;
    while cuts < 200 {
        round += 1;
        let bytes = blob(round, 200_000 + random(200_000) as usize);
        let hub = hub_with(&bytes);
        let storage = FakeHub::start();
        storage.file("o/r", FILE, &bytes);
        if round % 2 == 0 {
            hub.storage(&storage.url);
        }
        let points: Vec<usize> = (0..10).map(|_| random(60_000) as usize).collect();
        let done = Arc::new(Mutex::new((0, Vec::new())));
        for server in [&hub, &storage] {
            let (points, done) = (points.clone(), Arc::clone(&done));
            server.hook(move |request, _| {
                let mut done = done.lock().unwrap();
                if !request.is_data() || request.path.contains("resolve") && round % 2 == 0 {
                    return Action::Normal;
                }
                done.1.push(request.from());
                let cut = points.get(done.0).copied();
                done.0 += 1;
                cut.map_or(Action::Normal, Action::Cut)
            });
        }
        let mut place = Place::new(&hub.url);
        // Odd rounds give up at every cut, so that each goes on as a new process would.
        place.settings.patience.tries = if round % 4 < 2 { 1 } else { 20 };
        let found = loop {
            match place.pull("o/r").0 {
                Ok(found) => break found,
                Err(error) => {
                    assert!(matches!(error, Error::Interrupted { .. } | Error::Unreachable { .. }), "{error}");
                    assert!(place.hub().find(&name("o/r")).is_none());
                }
            }
        };
        corrupt += usize::from(std::fs::read(&found.files[0]).unwrap() != bytes);
        let done = done.lock().unwrap();
        cuts += points.len().min(done.0 - 1);
        // A request from byte 0 is a start over once a byte (the head is kept from 64 on) was kept before.
        let mut kept = 0;
        for (at, &from) in done.1.iter().enumerate() {
            restarts += usize::from(from == 0 && kept > 0);
            assert!(from >= kept, "went back from {kept} to {from}");
            let cut = points.get(at).map_or(0, |&cut| cut as u64);
            kept = if from > 0 || cut >= 64 { from + cut } else { 0 };
        }
    }
    assert_eq!((corrupt, restarts), (0, 0), "of {cuts} interruptions");
    assert!(cuts >= 200);
}

#[test]
fn e19_a_file_that_changed_on_the_server_is_all_new() {
    let (old, new) = (blob(4, 300_000), blob(5, 280_000));
    let hub = hub_with(&old);
    let mut place = Place::new(&hub.url);
    place.settings.patience.tries = 1;
    hub.hook(|request, _| if request.is_data() { Action::Cut(100_000) } else { Action::Normal });
    place.pull("o/r").0.unwrap_err();
    hub.hook(|_, _| Action::Normal);
    hub.file("o/r", FILE, &new);
    let found = place.pull("o/r").0.unwrap();
    assert_eq!(std::fs::read(&found.files[0]).unwrap(), new);
    assert!(!place.repo_tree().iter().any(|path| path.ends_with("incomplete")), "{:?}", place.repo_tree());
}

#[test]
fn e19_pieces_of_two_states_are_fetched_anew_in_one() {
    // The tag stays and the bytes change: only the hash can tell.
    let (old, new) = (blob(4, 300_000), blob(5, 300_000));
    let hub = FakeHub::start();
    hub.entry("o/r", FILE, Entry { bytes: old, etag: sha256(&new), size: 300_000 });
    let mut place = Place::new(&hub.url);
    place.settings.patience.tries = 1;
    hub.hook(|request, _| if request.is_data() { Action::Cut(100_000) } else { Action::Normal });
    place.pull("o/r").0.unwrap_err();
    hub.hook(|_, _| Action::Normal);
    hub.file("o/r", FILE, &new);
    let (found, events) = place.pull("o/r");
    assert_eq!(std::fs::read(&found.unwrap().files[0]).unwrap(), new);
    assert!(events.iter().any(|event| event.contains("Restart")), "{events:?}");
}

#[test]
fn a_wrong_hash_is_refused_and_nothing_stays() {
    let hub = FakeHub::start();
    hub.entry("o/r", FILE, Entry { bytes: blob(6, 50_000), etag: sha256(b"other"), size: 50_000 });
    let place = Place::new(&hub.url);
    let error = place.pull("o/r").0.unwrap_err();
    assert!(matches!(&error, Error::Hash { expected, .. } if *expected == sha256(b"other")), "{error}");
    assert_eq!(place.repo_tree(), [""; 0]);
}

#[test]
fn e21_relative_and_absolute_redirects_work() {
    let bytes = blob(7, 30_000);
    let hub = hub_with(&bytes);
    // A mirror: the first answer leads elsewhere on the same host and says nothing of the file.
    hub.hook(|request, _| match request.path.strip_prefix("/o/r/") {
        Some(rest) => answer(307, &[("location", &format!("/moved/r/{rest}"))], b""),
        None => Action::Normal,
    });
    hub.file("moved/r", FILE, &bytes);
    let place = Place::new(&hub.url);
    assert_eq!(std::fs::read(&place.pull("o/r").0.unwrap().files[0]).unwrap(), bytes);

    let storage = FakeHub::start();
    storage.file("x/y", "z", &bytes);
    let hub = hub_with(&bytes);
    hub.storage(&storage.url);
    let place = Place::new(&hub.url);
    assert_eq!(std::fs::read(&place.pull("o/r").0.unwrap().files[0]).unwrap(), bytes);
    assert!(storage.log().iter().all(|request| request.method == "GET"), "the storage host is not asked for headers");

    hub.hook(|_, _| answer(302, &[("location", "/again")], b""));
    let error = place.pull("o/r").0.unwrap_err();
    assert!(error.to_string().contains("more than 10 redirects"), "{error}");
}

#[test]
fn e22_every_request_goes_to_the_endpoint() {
    let bytes = blob(8, 1000);
    for (suffix, prefix) in [("", ""), ("/", ""), ("/hf", "/hf"), ("/hf/", "/hf")] {
        let hub = hub_with(&bytes);
        hub.prefix(prefix);
        let place = Place::new(&format!("{}{suffix}", hub.url));
        place.pull("o/r").0.unwrap();
        let log = hub.log();
        assert_eq!(log.len(), 3, "{log:?}");
        assert!(log.iter().all(|request| request.path.starts_with(prefix) && !request.path.contains("//")), "{log:?}");
    }
}

#[test]
fn e23_the_token_stays_with_its_host() {
    let bytes = blob(9, 1000);
    let (hub, storage) = (hub_with(&bytes), FakeHub::start());
    storage.file("x/y", "z", &bytes);
    hub.storage(&storage.url);
    let place = Place::new(&hub.url).with_token("hf_x");
    let (_, events) = place.pull("o/r");
    let same = hub_with(&bytes);
    same.hook(|request, _| match request.path.strip_prefix("/o/r/") {
        Some(rest) => answer(307, &[("location", &format!("/moved/r/{rest}"))], b""),
        None => Action::Normal,
    });
    same.file("moved/r", FILE, &bytes);
    Place::new(&same.url).with_token("hf_x").pull("o/r").0.unwrap();
    for request in hub.log().iter().chain(&same.log()) {
        assert_eq!(request.header("authorization"), Some("Bearer hf_x"), "{request:?}");
    }
    assert!(!storage.log().is_empty());
    for request in storage.log() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
    }
    assert!(!format!("{events:?} {:?}", place.settings).contains("hf_x"));
}

#[test]
fn e25_offline_asks_nobody() {
    let hub = hub_with(&blob(10, 1000));
    let mut place = Place::new(&hub.url);
    let found = place.pull("o/r").0.unwrap();
    hub.clear_log();
    place.settings.offline = true;
    assert_eq!(place.hub().find(&name("o/r")).unwrap().files, found.files);
    let error = place.pull("o/other").0.unwrap_err();
    assert_eq!(error.to_string(), "o/other is not in the cache, and offline is set");
    assert!(hub.log().is_empty());
}

#[test]
fn e27_without_links_files_are_moved_not_copied() {
    let bytes = blob(11, 100_000);
    let hub = hub_with(&bytes);
    let mut place = Place::new(&hub.url);
    place.settings.links = false;
    let (found, events) = place.pull("o/r");
    let found = found.unwrap();
    assert_eq!(std::fs::read(&found.files[0]).unwrap(), bytes);
    assert_eq!(place.repo_tree(), ["refs/main".to_owned(), format!("snapshots/{COMMIT}/{FILE}")], "one copy");
    assert!(!events.iter().any(|event| event.contains("Copied")));
    assert_eq!(place.hub().find(&name("o/r")).unwrap(), found);
    hub.clear_log();
    place.pull("o/r").0.unwrap();
    assert!(!hub.log().iter().any(fake_hub::Request::is_data), "it is known to be whole");
    assert_eq!(place.hub().cache().models().len(), 1);

    // A blob that another revision links to stays: the copy is told.
    place.settings.links = true;
    let hub = hub_with(&bytes);
    let mut place = Place::new(&hub.url);
    place.pull("o/r").0.unwrap();
    hub.commit("o/r", &"f".repeat(40));
    place.settings.links = false;
    let (found, events) = place.pull("o/r");
    assert_eq!(std::fs::read(&found.unwrap().files[0]).unwrap(), bytes);
    assert!(events.iter().any(|event| event.contains("Copied")), "{events:?}");
}

#[cfg(unix)]
#[test]
fn e27_caches_of_other_tools_are_read() {
    let bytes = blob(12, 5000);
    let hub = hub_with(&bytes);
    for linked in [true, false] {
        let place = Place::new(&hub.url);
        let repo = place.cache().join("models--o--r");
        let snapshot = repo.join("snapshots").join(COMMIT);
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::create_dir_all(repo.join("blobs")).unwrap();
        std::fs::create_dir_all(repo.join("refs")).unwrap();
        std::fs::write(repo.join("refs/main"), COMMIT).unwrap();
        if linked {
            std::fs::write(repo.join("blobs").join(sha256(&bytes)), &bytes).unwrap();
            let target = format!("../../blobs/{}", sha256(&bytes));
            std::os::unix::fs::symlink(target, snapshot.join(FILE)).unwrap();
        } else {
            std::fs::write(snapshot.join(FILE), &bytes).unwrap();
        }
        let found = place.hub().find(&name("o/r")).unwrap();
        assert_eq!(std::fs::read(&found.files[0]).unwrap(), bytes);
        hub.clear_log();
        place.pull("o/r").0.unwrap();
        assert!(!hub.log().iter().any(fake_hub::Request::is_data), "{linked}: fetched again");
    }
}

#[test]
fn e29_pages_and_pointers_are_no_models() {
    let page = b"<!DOCTYPE html><html>Sign in to the network</html>";
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let html = [("content-type", "text/html; charset=utf-8")];
    type Portal = fn(&fake_hub::Request) -> bool;
    let everything: Portal = |_| true;
    let heads: Portal = |request| !request.path.starts_with("/api/");
    let data: Portal = fake_hub::Request::is_data;
    let cases: [(Portal, Action, &str); 5] = [
        (everything, answer(200, &html, page), "a web page (HTML)"),
        (heads, answer(200, &html, page), "a web page (HTML)"),
        (data, answer(200, &html, page), "a web page (HTML)"),
        (data, answer(200, &[], page), "a web page (HTML)"),
        (data, answer(200, &[], pointer), "a Git LFS pointer"),
    ];
    for (when, action, found) in cases {
        let hub = hub_with(&blob(13, 100_000));
        hub.hook(move |request, _| if when(request) { action.clone() } else { Action::Normal });
        let place = Place::new(&hub.url);
        let error = place.pull("o/r").0.unwrap_err();
        assert!(error.to_string().contains(found), "{error}");
        assert!(error.hint().unwrap().contains("HF_ENDPOINT"));
        let left = place.repo_tree();
        assert!(left.iter().all(|path| path.ends_with(".incomplete")), "{left:?}");
        assert!(place.hub().cache().unfinished().iter().all(|(_, bytes)| *bytes == 0));
    }
}

#[test]
fn e31_hostile_names_write_nothing() {
    let bytes = blob(14, 1000);
    for file in ["../../evil.gguf", "/abs.gguf", "C:\\x.gguf", "a/../../b.gguf", "a\0b.gguf", ".git/hooks/x.gguf"] {
        let hub = hub_with(&bytes);
        hub.file("o/r", file, &bytes);
        let place = Place::new(&hub.url);
        let error = place.pull("o/r").0.unwrap_err();
        assert!(matches!(error, Error::Hostile { .. }), "{file}: {error}");
        assert!(!error.to_string().chars().any(char::is_control));
        assert_eq!(place.tree(), [""; 0], "{file}");
    }
    let hub = FakeHub::start();
    hub.entry("o/r", FILE, Entry { bytes: bytes.clone(), etag: "../../x".into(), size: 1000 });
    let place = Place::new(&hub.url);
    let error = place.pull("o/r").0.unwrap_err();
    assert!(matches!(error, Error::Hostile { what: "the entity tag", .. }), "{error}");
    assert_eq!(place.tree(), [""; 0]);

    let hub = hub_with(&bytes);
    hub.commit("o/r", "../x");
    let error = Place::new(&hub.url).pull("o/r").0.unwrap_err();
    assert!(matches!(error, Error::Hostile { what: "the commit", .. }), "{error}");
}

#[test]
fn e35_too_little_space_is_told_before_the_first_byte() {
    let hub = hub_with(&blob(15, 100_000));
    let mut place = Place::new(&hub.url);
    place.settings.free_space = |_| Ok(50_000);
    let error = place.pull("o/r").0.unwrap_err();
    assert!(matches!(error, Error::Space { free: 50_000, .. }), "{error}");
    assert!(error.to_string().contains("no space") && error.hint().unwrap().contains("demask rm"));
    assert!(!hub.log().iter().any(fake_hub::Request::is_data));
    place.settings.free_space = |_| Ok(1 << 40);
    place.pull("o/r").0.unwrap();
}

#[test]
fn stalls_are_noticed_and_survived() {
    let bytes = blob(16, 100_000);
    let hub = hub_with(&bytes);
    let mut stalled = false;
    hub.hook(move |request, _| match request.is_data() && !std::mem::replace(&mut stalled, request.is_data()) {
        true => Action::Stall(40_000, Duration::from_secs(3)),
        false => Action::Normal,
    });
    let place = Place::new(&hub.url);
    let started = Instant::now();
    let (found, events) = place.pull("o/r");
    assert_eq!(std::fs::read(&found.unwrap().files[0]).unwrap(), bytes);
    assert!(started.elapsed() < Duration::from_secs(3), "waited for the stall: {:?}", started.elapsed());
    assert!(events.iter().any(|event| event.contains("stopped sending")), "{events:?}");
}

#[test]
fn rate_limits_are_waited_for() {
    let bytes = blob(17, 1000);
    let hub = hub_with(&bytes);
    hub.hook(|_, count| if count % 2 == 0 { answer(429, &[("retry-after", "0")], b"") } else { Action::Normal });
    let (found, events) = Place::new(&hub.url).pull("o/r");
    found.unwrap();
    assert_eq!(events.iter().filter(|event| event.contains("Retry")).count(), 3, "{events:?}");

    hub.hook(|_, _| answer(429, &[("retry-after", "86400")], b""));
    let started = Instant::now();
    let error = Place::new(&hub.url).pull("o/r").0.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }) && error.to_string().contains("86400"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(1));

    hub.hook(|_, _| answer(503, &[], b""));
    let error = Place::new(&hub.url).pull("o/r").0.unwrap_err();
    assert!(error.to_string().contains("503"), "{error}");
}

#[test]
fn gated_and_private_models_say_what_to_do() {
    let hub = hub_with(&blob(18, 1000));
    let place = Place::new(&hub.url);
    let with_token = Place::new(&hub.url).with_token("hf_x");
    let refuse = |status: u16, code: &'static str| {
        hub.hook(move |_, _| answer(status, &[("x-error-code", code), ("x-error-message", "no")], b""));
    };
    refuse(401, "GatedRepo");
    let error = place.pull("o/r").0.unwrap_err();
    let page = format!("{}/o/r", hub.url);
    assert!(matches!(error, Error::Gated { .. }), "{error}");
    assert!(error.hint().unwrap().contains(&page) && error.hint().unwrap().contains("HF_TOKEN"), "{:?}", error.hint());
    refuse(403, "GatedRepo");
    let error = with_token.pull("o/r").0.unwrap_err();
    assert!(error.hint().unwrap().contains(&page) && error.hint().unwrap().contains("account"), "{:?}", error.hint());
    refuse(401, "");
    assert!(matches!(with_token.pull("o/r").0.unwrap_err(), Error::Token { .. }));
    assert!(matches!(place.pull("o/r").0.unwrap_err(), Error::NotFound { .. }));
    refuse(404, "RepoNotFound");
    assert!(place.pull("o/r").0.unwrap_err().to_string().contains("doesn't know o/r"));
}

#[test]
fn servers_that_cannot_continue_are_started_over() {
    let bytes = blob(19, 100_000);
    let hub = hub_with(&bytes);
    let mut data = 0;
    hub.hook(move |request, _| {
        data += usize::from(request.is_data());
        match (request.is_data(), data) {
            (true, 1) => Action::Cut(50_000),
            (true, _) => Action::NoRange,
            _ => Action::Normal,
        }
    });
    let place = Place::new(&hub.url);
    let (found, events) = place.pull("o/r");
    assert_eq!(std::fs::read(&found.unwrap().files[0]).unwrap(), bytes);
    assert!(events.iter().any(|event| event.contains("can't continue")), "{events:?}");
}

#[test]
fn lies_about_sizes_are_refused() {
    let bytes = blob(20, 50_000);
    type Header = (&'static str, &'static str);
    let cases: [(&[Header], &[u8]); 2] = [(&[], &bytes[..40_000]), (&[("content-length", "60000")], &bytes)];
    for (headers, body) in cases {
        let hub = hub_with(&bytes);
        let action = answer(200, headers, body);
        hub.hook(move |request, _| if request.is_data() { action.clone() } else { Action::Normal });
        let place = Place::new(&hub.url);
        let error = place.pull("o/r").0.unwrap_err();
        assert!(matches!(error, Error::Contradiction { .. }), "{error}");
        assert!(place.hub().find(&name("o/r")).is_none());
    }
    let hub = FakeHub::start();
    hub.entry("o/r", FILE, Entry { bytes: bytes.clone(), etag: sha256(&bytes), size: u64::MAX });
    let error = Place::new(&hub.url).pull("o/r").0.unwrap_err();
    assert!(matches!(error, Error::Space { .. }), "{error}");
}

#[test]
fn without_a_network_one_try_is_enough() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (found, events) = Place::new(&nobody).pull("o/r");
    let error = found.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn two_at_once_fetch_once() {
    let bytes = blob(21, 400_000);
    let hub = hub_with(&bytes);
    // Slow enough that both are at it.
    let mut first = true;
    hub.hook(move |request, _| match request.is_data() && std::mem::take(&mut first) {
        true => Action::Stall(200_000, Duration::from_millis(200)),
        false => Action::Normal,
    });
    let place = Place::new(&hub.url);
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..3).map(|_| scope.spawn(|| place.pull("o/r").0.unwrap())).collect();
        for pull in pulls {
            assert_eq!(std::fs::read(&pull.join().unwrap().files[0]).unwrap(), bytes);
        }
    });
    let data: Vec<u64> = hub.log().iter().filter(|r| r.is_data()).map(fake_hub::Request::from).collect();
    assert_eq!(data, [0, 200_000], "one of them fetched it");
}

#[test]
fn a_damaged_file_is_found_and_fetched_again() {
    let bytes = blob(22, 50_000);
    let hub = hub_with(&bytes);
    let place = Place::new(&hub.url);
    let found = place.pull("o/r").0.unwrap();
    let mut wrong = bytes.clone();
    wrong[40_000] ^= 1;
    std::fs::write(&found.files[0], &wrong).unwrap();
    let client: Hub = place.hub();
    let faults = client.cache().faults(client.settings(), true, &mut |_, _, _| {});
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].kind, faults[0].model.as_deref()), (demask_hub::FaultKind::WrongHash, Some("o/r:Q4_K_M")));
    let (found, events) = place.pull("o/r");
    assert_eq!(std::fs::read(&found.unwrap().files[0]).unwrap(), bytes);
    assert!(events.iter().any(|event| event.contains("damaged")), "{events:?}");
    assert!(client.cache().faults(client.settings(), true, &mut |_, _, _| {}).is_empty());
}

#[test]
fn removing_takes_what_nothing_else_needs() {
    let hub = FakeHub::start();
    hub.file("o/r", "m.Q4_K_M.gguf", &blob(1, 1000)).file("o/r", "m.Q8_0.gguf", &blob(2, 2000));
    let place = Place::new(&hub.url);
    place.pull("o/r:Q4_K_M").0.unwrap();
    place.pull("o/r:Q8_0").0.unwrap();
    let cache = place.hub().cache().clone();
    assert_eq!(cache.models().iter().map(|m| m.model.to_string()).collect::<Vec<_>>(), ["o/r:Q4_K_M", "o/r:Q8_0"]);
    assert!(cache.removal(&name("o/r:Q6_K")).is_none() && cache.removal(&name("o/x")).is_none());
    let removal = cache.removal(&name("o/r:q8_0")).unwrap();
    assert_eq!(removal.bytes, 2000);
    removal.carry_out().unwrap();
    assert!(cache.find(&name("o/r:Q8_0")).is_none() && cache.find(&name("o/r:Q4_K_M")).is_some());
    let removal = cache.removal(&name("o/r")).unwrap();
    assert_eq!(removal.bytes, 1000 + COMMIT.len() as u64);
    removal.carry_out().unwrap();
    assert!(!place.cache().join("models--o--r").exists());
}
