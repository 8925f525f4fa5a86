//! Decoders against the `gguf` Python package's dequantisation, on the blocks under `fixtures/quants`.
#![allow(clippy::unwrap_used)]

use super::QUANT_TYPES;

#[test]
fn decoders_equal_the_gguf_package() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/quants");
    for row in QUANT_TYPES {
        let stem = row.name.to_lowercase();
        let blocks = std::fs::read(folder.join(format!("{stem}.blocks"))).unwrap_or_else(|e| panic!("{stem}: {e}"));
        let wanted: Vec<f32> = std::fs::read(folder.join(format!("{stem}.f32")))
            .unwrap()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let mut found = vec![0.0; wanted.len()];
        row.ty.decode(&blocks, &mut found);
        assert!(found.len() >= 64 * row.block_len, "{stem}: too few blocks to say anything");
        for (i, (f, w)) in found.iter().zip(&wanted).enumerate() {
            assert!((f - w).abs() <= 1e-6 || f.to_bits() == w.to_bits(), "{stem} weight {i}: {f}, wanted {w}");
        }
    }
}

#[test]
fn names_are_found_in_any_case() {
    for row in QUANT_TYPES {
        assert_eq!(super::QuantType::from_name(&row.name.to_lowercase()), Some(row.ty));
    }
    assert_eq!(super::QuantType::from_name("Q9_Z"), None);
}
