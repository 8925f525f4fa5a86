//! The small statistics of `demask eval`.

/// The normal quantile of a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % interval of a share (Wilson 1927): right for few items and for shares near 0 and 1.
pub(super) fn wilson(correct: usize, items: usize) -> [f64; 2] {
    if items == 0 {
        return [0.0, 1.0];
    }
    let (n, share) = (items as f64, correct as f64 / items as f64);
    let centre = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    [((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0)]
}

/// The 95 % interval of a difference of paired shares (Agresti and Min 2005: Wald's with half an item added to each of the
/// four cells, so that it has a width even if no pair differs). `gained` pairs are right only in the second.
pub(super) fn paired(gained: usize, lost: usize, items: usize) -> [f64; 2] {
    let (gained, lost, n) = (gained as f64 + 0.5, lost as f64 + 0.5, items as f64 + 2.0);
    let difference = (gained - lost) / n;
    let half = Z * (gained + lost - (gained - lost).powi(2) / n).sqrt() / n;
    [(difference - half).max(-1.0), (difference + half).min(1.0)]
}

/// McNemar's exact test, two-sided: how likely pairs that differ split at least as unevenly if neither is better.
pub(super) fn mcnemar(gained: usize, lost: usize) -> f64 {
    let (fewer, all) = (gained.min(lost), gained + lost);
    // ln of all over k, from term to term; its power of two in the end, as 2^-1100 is no number.
    let mut ln_choose = 0.0;
    let mut tail = 0.0;
    for k in 0..=fewer {
        tail += (ln_choose - all as f64 * std::f64::consts::LN_2).exp();
        ln_choose += ((all - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 5e-5, "{found} is not {wanted}");
    }

    #[test]
    fn wilson_has_the_published_intervals() {
        // Newcombe (1998), Statistics in Medicine 17, 857: table I, method 3.
        for ((correct, items), [low, high]) in [
            ((81, 263), [0.2553, 0.3662]),
            ((15, 148), [0.0624, 0.1605]),
            ((0, 20), [0.0, 0.1611]),
            ((1, 29), [0.0061, 0.1718]),
        ] {
            let found = wilson(correct, items);
            close(found[0], low);
            close(found[1], high);
        }
        close(wilson(20, 20)[0], 1.0 - 0.1611);
        assert_eq!((wilson(20, 20)[1], wilson(0, 0)), (1.0, [0.0, 1.0]));
    }

    #[test]
    fn mcnemar_is_the_binomial_tail() {
        close(mcnemar(1, 9), 22.0 / 1024.0);
        close(mcnemar(9, 1), 22.0 / 1024.0);
        close(mcnemar(0, 5), 2.0 / 32.0);
        close(mcnemar(6, 16), 0.0525);
        assert_eq!((mcnemar(0, 0), mcnemar(3, 3)), (1.0, 1.0));
        close(mcnemar(4, 3), 1.0);
        // 2000 pairs: each half of the tail is far below the smallest number, and the sum isn't.
        close(mcnemar(1000, 1000), 1.0);
        assert!((0.02..0.03).contains(&mcnemar(950, 1050)));
        assert!(mcnemar(100, 1900) < 1e-100);
    }

    #[test]
    fn paired_differences_have_their_interval() {
        // By hand: n + 2 = 102, 3.5 - 7.5 of them: -0.0392; the root of 11 - 16 / 102, by 102: 0.0323.
        let [low, high] = paired(3, 7, 100);
        close(low, -0.039_216 - Z * 0.032_284);
        close(high, -0.039_216 + Z * 0.032_284);
        let [low, high] = paired(0, 0, 616);
        assert!(low < 0.0 && high > 0.0 && high < 0.004, "{low} {high}");
        let mirrored = paired(7, 3, 100);
        close(mirrored[0], -paired(3, 7, 100)[1]);
    }
}
