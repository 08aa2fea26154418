//! Parts of films (`flv`, `mp4`).

use blackbox::Server;

fn boxed(name: &str, parts: &[&[u8]]) -> Vec<u8> {
    let data = parts.concat();
    let size = u32::try_from(data.len() + 8)
        .expect("it fits")
        .to_be_bytes();
    [&size[..], name.as_bytes(), &data].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

/// A film of four seconds: four samples of four bytes in two chunks, the first and the third of which are key frames.
fn film() -> Vec<u8> {
    const DATA: &[u8] = b"aaaabbbbccccdddd";
    let ftyp = boxed("ftyp", &[b"isom"]);
    let moov = |data: u32| {
        let mut clock = [0; 100];
        clock[12..20].copy_from_slice(&numbers(&[1000, 4000]));
        let mut tkhd = [0; 84];
        tkhd[20..24].copy_from_slice(&numbers(&[4000]));
        let tables = [
            boxed("stsd", &[&[0; 16]]),
            boxed("stts", &[&numbers(&[0, 1, 4, 1000])]),
            boxed("stss", &[&numbers(&[0, 2, 1, 3])]),
            boxed("stsc", &[&numbers(&[0, 1, 1, 2, 1])]),
            boxed("stsz", &[&numbers(&[0, 0, 4, 4, 4, 4, 4])]),
            boxed("stco", &[&numbers(&[0, 2, data, data + 8])]),
        ];
        let stbl = boxed("stbl", &[&tables.concat()]);
        let minf = boxed("minf", &[&boxed("vmhd", &[&[0; 12]]), &stbl]);
        let mdia = boxed("mdia", &[&boxed("mdhd", &[&clock[..24]]), &minf]);
        let trak = boxed("trak", &[&boxed("tkhd", &[&tkhd]), &mdia]);
        boxed("moov", &[&boxed("mvhd", &[&clock]), &trak])
    };
    let begin = (ftyp.len() + moov(0).len() + 8) as u32;
    [ftyp, moov(begin), boxed("mdat", &[DATA])].concat()
}

fn at(film: &[u8], name: &str) -> usize {
    let place = film.windows(4).position(|four| four == name.as_bytes());
    place.unwrap_or_else(|| panic!("no {name}"))
}

/// The numbers of a table, how many entries there are first.
fn rows(film: &[u8], name: &str) -> Vec<u32> {
    let begin = at(film, name);
    let size = u32::from_be_bytes(film[begin - 4..begin].try_into().expect("it fits")) as usize;
    let data = &film[begin + 8..begin - 4 + size];
    data.chunks(4)
        .map(|four| u32::from_be_bytes(four.try_into().expect("it fits")))
        .collect()
}

fn server(files: &[(&str, &[u8])]) -> Server {
    let server = Server::start(
        "types { video/mp4 mp4; video/x-flv flv; } default_type text/plain;
         server { listen 127.0.0.1:%PORT%;
            location / { mp4; }
            location /key/ { mp4; mp4_start_key_frame on; alias %DIR%/html/; }
            location /small/ { mp4; mp4_buffer_size 32; mp4_max_buffer_size 100; alias %DIR%/html/; }
            location /flash/ { flv; alias %DIR%/html/; } }",
    );
    for (name, bytes) in files {
        server.file(name, bytes);
    }
    server
}

#[test]
fn a_part_of_a_film_is_a_film() {
    let film = film();
    let server = server(&[("film.mp4", &film)]);
    let whole = server.get("/film.mp4");
    assert_eq!((whole.status, &whole.body), (200, &film));
    for target in [
        "/film.mp4?start=0",
        "/film.mp4?start=x",
        "/film.mp4?end=0",
        "/film.mp4?start=0&end=0",
    ] {
        let reply = server.get(target);
        assert_eq!((reply.status, &reply.body), (200, &film), "{target}");
    }
    for (target, data, samples, chunks) in [
        ("/film.mp4?start=1", "bbbbccccdddd", 3, 2),
        ("/film.mp4?start=1.0009", "bbbbccccdddd", 3, 2),
        ("/film.mp4?start=3", "dddd", 1, 1),
        ("/film.mp4?end=1", "aaaa", 1, 1),
        ("/film.mp4?start=1&end=3", "bbbbcccc", 2, 2),
        ("/film.mp4?start=2&end=1", "ccccdddd", 2, 1),
        ("/key/film.mp4?start=1&end=2", "aaaabbbb", 2, 1),
    ] {
        let reply = server.get(target);
        assert_eq!(reply.status, 200, "{target}");
        assert_eq!(reply.header("Content-Type"), Some("video/mp4"));
        let part = &reply.body;
        assert!(part.ends_with(data.as_bytes()), "{target}");
        let mdat = at(part, "mdat");
        assert_eq!(part.len() - mdat - 4, data.len(), "{target}");
        assert_eq!(rows(part, "stts")[1], samples, "{target}");
        let places = rows(part, "stco");
        assert_eq!(
            (places[0], places[1]),
            (chunks, mdat as u32 + 4),
            "{target}"
        );
        let moov = u32::from_be_bytes(part[12..16].try_into().unwrap()) as usize;
        assert_eq!(&part[12 + moov + 4..12 + moov + 8], b"mdat", "{target}");
    }
    let part = server.get("/film.mp4?start=1");
    let last = server.get("/film.mp4?start=3");
    assert_ne!(last.header("ETag"), whole.header("ETag"));
    let head = server.request("HEAD", "/film.mp4?start=1", "");
    let length = part.body.len().to_string();
    assert_eq!(head.header("Content-Length"), Some(&length[..]));
    let some = server.get_with("/film.mp4?start=1", "Range: bytes=4-7,-4\r\n");
    assert_eq!((some.status, &some.body), (200, &part.body));
    let some = server.get_with("/film.mp4?start=1", "Range: bytes=-6\r\n");
    assert_eq!((some.status, some.text().as_str()), (206, "ccdddd"));
    // The part from the key frame before says how much of it is not shown.
    let key = server.get("/key/film.mp4?start=1&end=2").body;
    assert_eq!(
        rows(&key, "elst"),
        [0x0100_0000, 1, 0, 1000, 0, 1000, 0x0001_0000][1..].to_vec()
    );
}

#[test]
fn what_is_no_film() {
    let film = film();
    let cut = |name: &str| {
        let mut film = film.clone();
        let place = at(&film, name);
        film[place..place + 4].copy_from_slice(b"none");
        film
    };
    let server = server(&[
        ("film.mp4", &film),
        ("text.mp4", b"no film at all"),
        ("empty.mp4", b""),
        ("data.mp4", &cut("mdat")),
        ("times.mp4", &cut("stts")),
        ("dir/x", b"x"),
    ]);
    for (target, status, text) in [
        (
            "/text.mp4?start=1",
            500,
            "html/text.mp4\" mp4 atom too large:1852776550",
        ),
        (
            "/empty.mp4?start=1",
            500,
            "no mp4 trak atoms were found in \"",
        ),
        ("/data.mp4?start=1", 500, "no mp4 mdat atom was found in \""),
        (
            "/times.mp4?start=1",
            500,
            "no mp4 stts atoms were found in \"",
        ),
        (
            "/film.mp4?start=4",
            500,
            "no mp4 trak atoms were found in \"",
        ),
        (
            "/film.mp4?start=4.1",
            500,
            "film.mp4\" mp4 start time exceeds file duration",
        ),
        (
            "/small/film.mp4?start=1",
            500,
            "film.mp4\" mp4 moov atom is too large:",
        ),
        ("/text.mp4", 200, ""),
        (
            "/none.mp4",
            404,
            "none.mp4\" failed (2: No such file or directory)",
        ),
        ("/dir", 301, ""),
        ("/dir/", 403, "is forbidden"),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
        server.wait_for(text, target);
    }
    assert_eq!(
        server
            .request("POST", "/film.mp4", "Content-Length: 0\r\n")
            .status,
        405
    );
}

#[test]
fn what_follows_a_byte_of_a_flash_film() {
    let server = server(&[("film.flv", b"0123456789")]);
    let head = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";
    let behind = |tail: &str| [head, tail.as_bytes()].concat();
    for (target, body) in [
        ("/flash/film.flv", b"0123456789".to_vec()),
        ("/flash/film.flv?start=0", b"0123456789".to_vec()),
        ("/flash/film.flv?start=x", b"0123456789".to_vec()),
        ("/flash/film.flv?start=10", b"0123456789".to_vec()),
        ("/flash/film.flv?start=4", behind("456789")),
        ("/flash/film.flv?START=9", behind("9")),
    ] {
        let reply = server.get(target);
        assert_eq!((reply.status, &reply.body), (200, &body), "{target}");
        assert_eq!(reply.header("Content-Type"), Some("video/x-flv"));
    }
    let part = server.get_with("/flash/film.flv?start=4", "Range: bytes=10-15\r\n");
    assert_eq!(
        (part.status, part.header("Content-Range")),
        (206, Some("bytes 10-15/19"))
    );
    assert_eq!(part.body, b"\0\0\x00456");
    assert_eq!(
        server
            .request("POST", "/flash/film.flv", "Content-Length: 0\r\n")
            .status,
        405
    );
    assert_eq!(server.get("/flash/none.flv").status, 404);
    assert_eq!(server.get("/flash/").status, 403);
}
