//! A read-only file system in memory: ISO 9660 with Joliet, one directory, whole files one after the other.
//!
//! Joliet is a second directory tree beside the plain one. It holds the names as they are; the plain tree knows capitals,
//! digits and `_` only, and cloud-init would not find `USER_DATA`. Dates are fixed, so equal files give equal bytes.

/// Bytes of a sector.
pub const SECTOR: usize = 2048;

/// Where the parts of every image lie, in sectors. The first sixteen are for boot loaders and stay empty.
mod at {
    pub(super) const PLAIN: u32 = 16;
    pub(super) const JOLIET: u32 = 17;
    pub(super) const END: u32 = 18;
    pub(super) const PLAIN_PATHS: [u32; 2] = [19, 20];
    pub(super) const PLAIN_ROOT: u32 = 21;
    pub(super) const JOLIET_PATHS: [u32; 2] = [22, 23];
    pub(super) const JOLIET_ROOT: u32 = 24;
    pub(super) const FILES: u32 = 25;
}

/// The path table of a file system whose only directory is its root.
const PATH_TABLE: u32 = 10;
/// 1970-01-01 as directory records have it: years since 1900, month, day, hour, minute, second, offset from UTC.
const DATE: [u8; 7] = [70, 1, 1, 0, 0, 0, 0];
/// `0000000000000000` and offset 0 mean that a date is not given.
const NO_DATE: [u8; 17] = *b"0000000000000000\0";

/// A file of the root directory. Names are of ASCII letters, digits, `-` and `_`, at most 28 characters, and come sorted.
pub(crate) struct File<'a> {
    pub(crate) name: &'a str,
    pub(crate) data: &'a [u8],
}

/// A file's place: first sector and length in bytes.
#[derive(Clone, Copy)]
struct Extent {
    sector: u32,
    length: u32,
}

#[derive(Clone, Copy)]
enum Tree {
    Plain,
    Joliet,
}

impl Tree {
    fn root(self) -> u32 {
        match self {
            Self::Plain => at::PLAIN_ROOT,
            Self::Joliet => at::JOLIET_ROOT,
        }
    }

    /// Path tables: little endian, big endian.
    fn paths(self) -> [u32; 2] {
        match self {
            Self::Plain => at::PLAIN_PATHS,
            Self::Joliet => at::JOLIET_PATHS,
        }
    }

    fn file_name(self, name: &str) -> Vec<u8> {
        match self {
            Self::Plain => {
                let mut plain: Vec<u8> =
                    name.bytes().map(|b| if b.is_ascii_alphanumeric() { b.to_ascii_uppercase() } else { b'_' }).collect();
                plain.extend_from_slice(b".;1");
                plain
            }
            Self::Joliet => ucs2(name),
        }
    }

    /// Text in a field of fixed size, filled up with blanks.
    fn text(self, text: &str, field: &mut [u8]) {
        let (encoded, blank): (Vec<u8>, &[u8]) = match self {
            Self::Plain => (text.as_bytes().to_vec(), b" "),
            Self::Joliet => (ucs2(text), b"\0 "),
        };
        let filled = encoded.into_iter().chain(blank.iter().copied().cycle());
        field.iter_mut().zip(filled).for_each(|(to, byte)| *to = byte);
    }
}

/// The image of a file system with this label and these files.
pub(crate) fn image<const N: usize>(label: &str, files: [File<'_>; N]) -> Vec<u8> {
    let mut next = at::FILES;
    let extents = files.each_ref().map(|file| {
        // Callers bound what goes onto a seed far below the 4 GiB that an extent can have.
        let length = u32::try_from(file.data.len()).unwrap_or(u32::MAX);
        let extent = Extent { sector: next, length };
        next += length.div_ceil(SECTOR as u32);
        extent
    });
    let mut image = vec![0; next as usize * SECTOR];
    for (tree, sector) in [(Tree::Plain, at::PLAIN), (Tree::Joliet, at::JOLIET)] {
        describe(tree, label, next, sector_of(&mut image, sector));
        let [little, big] = tree.paths();
        path_table(tree.root().to_le_bytes(), 1_u16.to_le_bytes(), sector_of(&mut image, little));
        path_table(tree.root().to_be_bytes(), 1_u16.to_be_bytes(), sector_of(&mut image, big));
        directory(tree, &files, &extents, sector_of(&mut image, tree.root()));
    }
    sector_of(&mut image, at::END)[..7].copy_from_slice(b"\xffCD001\x01");
    for (file, extent) in files.iter().zip(extents) {
        let start = extent.sector as usize * SECTOR;
        image[start..start + file.data.len()].copy_from_slice(file.data);
    }
    image
}

fn sector_of(image: &mut [u8], sector: u32) -> &mut [u8] {
    &mut image[sector as usize * SECTOR..][..SECTOR]
}

/// A volume descriptor. The offsets are those of ECMA-119, section 8.4, which counts from 1.
fn describe(tree: Tree, label: &str, sectors: u32, d: &mut [u8]) {
    d[..7].copy_from_slice(match tree {
        Tree::Plain => b"\x01CD001\x01",
        Tree::Joliet => b"\x02CD001\x01",
    });
    tree.text("LINUX", &mut d[8..40]);
    tree.text(label, &mut d[40..72]);
    d[80..88].copy_from_slice(&both32(sectors));
    if matches!(tree, Tree::Joliet) {
        // UCS-2, level 3.
        d[88..91].copy_from_slice(b"%/E");
    }
    // One volume, the first of one, in sectors of this size.
    d[120..124].copy_from_slice(&both16(1));
    d[124..128].copy_from_slice(&both16(1));
    d[128..132].copy_from_slice(&both16(SECTOR as u16));
    d[132..140].copy_from_slice(&both32(PATH_TABLE));
    let [little, big] = tree.paths();
    d[140..144].copy_from_slice(&little.to_le_bytes());
    d[148..152].copy_from_slice(&big.to_be_bytes());
    let root = record(&[0], Extent { sector: tree.root(), length: SECTOR as u32 }, true);
    d[156..156 + root.len()].copy_from_slice(&root);
    // Volume set, publisher, preparer, application; copyright, abstract and bibliographic file.
    for (start, end) in [(190, 318), (318, 446), (446, 574), (574, 702), (702, 739), (739, 776), (776, 813)] {
        tree.text("", &mut d[start..end]);
    }
    // Created, changed, expires, effective.
    for start in [813, 830, 847, 864] {
        d[start..start + NO_DATE.len()].copy_from_slice(&NO_DATE);
    }
    d[881] = 1;
}

/// The root: a name of one zero byte, where it lies, and itself as its parent.
fn path_table(root: [u8; 4], parent: [u8; 2], table: &mut [u8]) {
    table[0] = 1;
    table[2..6].copy_from_slice(&root);
    table[6..8].copy_from_slice(&parent);
}

fn directory(tree: Tree, files: &[File<'_>], extents: &[Extent], directory: &mut [u8]) {
    let itself = Extent { sector: tree.root(), length: SECTOR as u32 };
    let mut records = record(&[0], itself, true);
    records.extend(record(&[1], itself, true));
    for (file, extent) in files.iter().zip(extents) {
        records.extend(record(&tree.file_name(file.name), *extent, false));
    }
    directory[..records.len()].copy_from_slice(&records);
}

/// A directory record, of an even number of bytes.
fn record(name: &[u8], extent: Extent, directory: bool) -> Vec<u8> {
    let length = (33 + name.len()).next_multiple_of(2);
    let mut record = vec![0; length];
    record[0] = length as u8;
    record[2..10].copy_from_slice(&both32(extent.sector));
    record[10..18].copy_from_slice(&both32(extent.length));
    record[18..25].copy_from_slice(&DATE);
    record[25] = if directory { 2 } else { 0 };
    record[28..32].copy_from_slice(&both16(1));
    record[32] = name.len() as u8;
    record[33..33 + name.len()].copy_from_slice(name);
    record
}

fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// A number in both byte orders, as ISO 9660 keeps most of them.
fn both16(n: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (n.to_le_bytes(), n.to_be_bytes());
    [a, b, c, d]
}

fn both32(n: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (n.to_le_bytes(), n.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}
