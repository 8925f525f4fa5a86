//! How many positions a step decides.

/// Part `index` of `total` spread over `parts`: the remainder goes one each to the first (LLaDA,
/// `get_num_transfer_tokens`).
pub(super) fn share(total: usize, parts: usize, index: usize) -> usize {
    total / parts + usize::from(index < total % parts)
}

/// Steps per block, in proportion to its positions and at least one; what is left over goes one each to the first blocks.
/// With equal blocks this is LLaDA's rule; with a shorter last one, as many steps as positions still means one token each.
pub(super) fn block_steps(steps: usize, sizes: &[usize]) -> Vec<usize> {
    let positions: usize = sizes.iter().sum();
    let mut shares: Vec<usize> = sizes.iter().map(|size| (steps * size / positions).max(1)).collect();
    let left = steps.saturating_sub(shares.iter().sum());
    shares.iter_mut().take(left).for_each(|share| *share += 1);
    shares
}

/// The part of the open positions that step `step` of `steps` decides in Dream's schedule: `1 - s/t`, where time
/// falls evenly from 1 to `eps`; everything that is left in the last step.
pub(super) fn timestep_fraction(step: usize, steps: usize, eps: f64) -> f64 {
    if step + 1 >= steps {
        return 1.0;
    }
    let time = |step: usize| 1.0 - step as f64 * (1.0 - eps) / steps as f64;
    1.0 - time(step + 1) / time(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(total: usize, parts: usize) -> Vec<usize> {
        (0..parts).map(|i| share(total, parts, i)).collect()
    }

    fn dream(mut open: usize, steps: usize) -> Vec<usize> {
        let mut count = |step| {
            let n = (open as f64 * timestep_fraction(step, steps, 1e-3)) as usize;
            open -= n;
            n
        };
        (0..steps).map(&mut count).collect()
    }

    #[test]
    fn case_d01_d02_llada_counts() {
        assert_eq!(shares(10, 4), [3, 3, 2, 2]);
        assert_eq!(shares(7, 3), [3, 2, 2]);
        assert_eq!(shares(32, 5), [7, 7, 6, 6, 6]);
        assert_eq!(shares(32, 32), [1; 32]);
        assert_eq!(shares(1, 1), [1]);
        assert_eq!(shares(3, 8), [1, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(shares(64, 128).iter().sum::<usize>(), 64);
    }

    #[test]
    fn case_d05_steps_and_lengths_that_do_not_divide() {
        assert_eq!(block_steps(100, &[32, 32, 32, 4]), [32, 32, 32, 4]);
        assert_eq!(block_steps(100, &[32, 32, 32]), [34, 33, 33]);
        assert_eq!(block_steps(10, &[8, 8, 4]), [4, 4, 2]);
        assert_eq!(block_steps(3, &[32, 32, 4]), [1, 1, 1]);
    }

    #[test]
    fn case_d03_dream_counts() {
        assert_eq!(dream(16, 4), [3, 4, 4, 5]);
        let ones = dream(16, 16);
        assert_eq!((ones[0], ones[15]), (0, 2));
        assert!(ones[1..15].iter().all(|&n| n == 1));
        assert_eq!(dream(10, 3), [3, 3, 4]);
        assert_eq!(dream(10, 1), [10]);
        let twos = dream(64, 32);
        assert_eq!((twos[0], twos[31]), (1, 3));
        assert!(twos[1..31].iter().all(|&n| n == 2));
    }
}
