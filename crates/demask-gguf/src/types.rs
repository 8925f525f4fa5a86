//! Every tensor type that a file can name: id, name, weights per quant block, bytes per quant block.

use std::fmt;

/// The type of a tensor's elements, as the number that the file stores.
///
/// The constants name every type in use; [`TensorType::is_removed`] tells the ids that old files may hold and that
/// nothing writes or reads any more. What can be *run* is not this crate's business.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorType(pub u32);

struct Row {
    id: u32,
    name: &'static str,
    block_len: u64,
    block_bytes: u64,
}

macro_rules! table {
    ($($name:ident = $id:literal, $len:literal, $bytes:literal, $doc:literal;)*) => {
        impl TensorType {
            $(#[doc = $doc] pub const $name: TensorType = TensorType($id);)*
        }
        static KNOWN: &[Row] = &[
            $(Row { id: $id, name: stringify!($name), block_len: $len, block_bytes: $bytes },)*
        ];
    };
}

// name = id, weights per quant block, bytes per quant block; in the order of the ids.
table! {
    F32 = 0, 1, 4, "32-bit float.";
    F16 = 1, 1, 2, "16-bit IEEE float.";
    Q4_0 = 2, 32, 18, "4 bits and a scale per 32.";
    Q4_1 = 3, 32, 20, "4 bits, a scale and a minimum per 32.";
    Q5_0 = 6, 32, 22, "5 bits and a scale per 32.";
    Q5_1 = 7, 32, 24, "5 bits, a scale and a minimum per 32.";
    Q8_0 = 8, 32, 34, "8 bits and a scale per 32.";
    Q8_1 = 9, 32, 36, "8 bits, a scale and a sum per 32; for activations.";
    Q2_K = 10, 256, 84, "2 bits with 4-bit scales and minima per 16.";
    Q3_K = 11, 256, 110, "3 bits with 6-bit scales per 16.";
    Q4_K = 12, 256, 144, "4 bits with 6-bit scales and minima per 32.";
    Q5_K = 13, 256, 176, "5 bits with 6-bit scales and minima per 32.";
    Q6_K = 14, 256, 210, "6 bits with 8-bit scales per 16.";
    Q8_K = 15, 256, 292, "8 bits and a float scale per 256; for activations.";
    IQ2_XXS = 16, 256, 66, "2.06 bits, codebook.";
    IQ2_XS = 17, 256, 74, "2.31 bits, codebook.";
    IQ3_XXS = 18, 256, 98, "3.06 bits, codebook.";
    IQ1_S = 19, 256, 50, "1.56 bits, codebook.";
    IQ4_NL = 20, 32, 18, "4 bits through a fixed table, a scale per 32.";
    IQ3_S = 21, 256, 110, "3.44 bits, codebook.";
    IQ2_S = 22, 256, 82, "2.56 bits, codebook.";
    IQ4_XS = 23, 256, 136, "4 bits through a fixed table, 6-bit scales per 32.";
    I8 = 24, 1, 1, "8-bit integer.";
    I16 = 25, 1, 2, "16-bit integer.";
    I32 = 26, 1, 4, "32-bit integer.";
    I64 = 27, 1, 8, "64-bit integer.";
    F64 = 28, 1, 8, "64-bit float.";
    IQ1_M = 29, 256, 56, "1.75 bits, codebook.";
    BF16 = 30, 1, 2, "16-bit brain float.";
    TQ1_0 = 34, 256, 54, "Ternary, 1.69 bits.";
    TQ2_0 = 35, 256, 66, "Ternary, 2.06 bits.";
    MXFP4 = 39, 32, 17, "4-bit float with a shared exponent per 32.";
    NVFP4 = 40, 64, 36, "4-bit float with an 8-bit float scale per 16.";
    Q1_0 = 41, 128, 18, "1 bit and a scale per 128.";
    Q2_0 = 42, 64, 18, "2 bits and a scale per 64.";
}

/// Ids that were once in use; they are never given out again.
static REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl TensorType {
    /// The number that the file stores.
    pub fn id(self) -> u32 {
        self.0
    }

    /// The name, as in `Q4_K`; removed types keep theirs; `unknown` for an id that was never given out.
    pub fn name(self) -> &'static str {
        let removed = REMOVED.iter().find(|(id, _)| *id == self.0).map(|(_, name)| *name);
        self.row().map(|row| row.name).or(removed).unwrap_or("unknown")
    }

    /// Weights per quant block; 1 for plain numbers; 0 when the type is not [known](Self::is_known).
    pub fn block_len(self) -> u64 {
        self.row().map_or(0, |row| row.block_len)
    }

    /// Bytes per quant block; 0 when the type is not [known](Self::is_known).
    pub fn block_bytes(self) -> u64 {
        self.row().map_or(0, |row| row.block_bytes)
    }

    /// Whether the type's layout is known, so that the size of a tensor can be told. Removed types are not.
    pub fn is_known(self) -> bool {
        self.row().is_some()
    }

    /// Whether the id belonged to a type that the format has given up.
    pub fn is_removed(self) -> bool {
        REMOVED.iter().any(|(id, _)| *id == self.0)
    }

    /// The known type of this name, in any case of letters.
    pub fn from_name(name: &str) -> Option<TensorType> {
        KNOWN.iter().find(|row| row.name.eq_ignore_ascii_case(name)).map(|row| TensorType(row.id))
    }

    /// Every known type, in the order of the ids.
    pub fn all() -> impl Iterator<Item = TensorType> {
        KNOWN.iter().map(|row| TensorType(row.id))
    }

    /// Bytes of a row of `row_len` weights; nothing when the type is not known, when the row is no whole number of
    /// quant blocks, or when the product does not fit.
    pub fn row_bytes(self, row_len: u64) -> Option<u64> {
        let row = self.row()?;
        if !row_len.is_multiple_of(row.block_len) {
            return None;
        }
        (row_len / row.block_len).checked_mul(row.block_bytes)
    }

    fn row(self) -> Option<&'static Row> {
        KNOWN.binary_search_by_key(&self.0, |row| row.id).ok().map(|at| &KNOWN[at])
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_apart_from_removed_ids() {
        assert!(KNOWN.windows(2).all(|pair| pair[0].id < pair[1].id));
        assert!(KNOWN.iter().all(|row| row.block_len > 0 && row.block_bytes > 0));
        assert!(REMOVED.iter().all(|(id, _)| !TensorType(*id).is_known()));
        assert_eq!(KNOWN.len() + REMOVED.len(), 43, "ids 0 to 42 are all spoken for");
    }

    #[test]
    fn names_and_sizes() {
        assert_eq!(TensorType::Q4_K.block_len(), 256);
        assert_eq!(TensorType::Q4_K.block_bytes(), 144);
        assert_eq!(TensorType::Q8_0.row_bytes(64), Some(68));
        assert_eq!(TensorType::Q8_0.row_bytes(33), None);
        assert_eq!(TensorType::F64.row_bytes(u64::MAX), None);
        assert_eq!(TensorType(4).name(), "Q4_2");
        assert!(TensorType(4).is_removed() && !TensorType(4).is_known());
        assert_eq!(TensorType(255).name(), "unknown");
        assert_eq!(TensorType::from_name("iq4_xs"), Some(TensorType::IQ4_XS));
        assert!(TensorType::all().all(|ty| TensorType::from_name(ty.name()) == Some(ty)));
    }
}
