//! From a row of logits to a guess: greedy, LLaDA's Gumbel rule, Dream's filtered categorical.

use demask_compute::{RowStatistics, Sample, SamplingRule};

use super::random::{Random, Stream};

/// A candidate for one open position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Guess {
    /// Canvas position.
    pub(super) position: usize,
    /// The token that would be written.
    pub(super) token: u32,
    /// Its probability.
    pub(super) probability: f64,
    /// Lead of the best token's probability over the second's.
    pub(super) margin: f64,
    /// Entropy, in nats, of the distribution that the token was drawn from.
    pub(super) entropy: f64,
    /// Entropy, in nats, of the row's plain softmax, without temperature or filters.
    pub(super) plain_entropy: f64,
    /// An end token that is to be committed after everything else.
    pub(super) comes_last: bool,
}

/// Which family's rule draws a token when the temperature is above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Draw {
    /// LLaDA: `argmax(l - T ln(-ln U))` in f64; probabilities are those of the plain softmax.
    Gumbel,
    /// Dream: temperature, then top-p, then top-k, then a categorical draw; probabilities are the filtered ones.
    Filtered {
        /// Keeps the likeliest tokens until their mass exceeds this; 1 = all.
        top_p: f64,
        /// Keeps this many tokens (and ties with the last); 0 = all.
        top_k: usize,
    },
}

/// How rows of logits become guesses.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    /// 0 = greedy.
    pub(super) temperature: f64,
    /// The family's rule.
    pub(super) draw: Draw,
    /// The mask token: never a guess, though it keeps its share of the probabilities.
    pub(super) mask_token: u32,
    /// Tokens whose logit is minus infinity.
    pub(super) banned: Vec<u32>,
    /// Tokens to be committed last (LLaDA's `confidence_eos_eot_inf`): left out of the softmax behind a confidence.
    pub(super) last: Vec<u32>,
}

impl Sampler {
    /// Whether [`RowStatistics`] say enough; otherwise whole rows of logits are needed.
    pub(super) fn needs_statistics_only(&self) -> bool {
        let filtered = matches!(self.draw, Draw::Filtered { top_p, top_k } if top_p < 1.0 || top_k > 0);
        self.temperature <= 0.0 && !filtered && self.banned.is_empty() && self.last.is_empty()
    }

    /// The rule by which a device may draw instead of [`Sampler::guess`]; none if more than a temperature is asked for.
    pub(super) fn device_rule(&self) -> Option<SamplingRule> {
        let plain = self.temperature > 0.0 && self.banned.is_empty() && self.last.is_empty();
        match self.draw {
            Draw::Gumbel if plain => Some(SamplingRule::Gumbel),
            Draw::Filtered { top_p, top_k: 0 } if plain && top_p >= 1.0 => Some(SamplingRule::Categorical),
            _ => None,
        }
    }

    /// The guess that a device drew.
    pub(super) fn drawn(&self, position: usize, sample: &Sample) -> Guess {
        Guess {
            position,
            token: sample.token,
            probability: sample.probability,
            margin: sample.margin,
            entropy: sample.entropy,
            plain_entropy: sample.plain_entropy,
            comes_last: false,
        }
    }

    /// The greedy guess from statistics.
    pub(super) fn greedy(&self, position: usize, row: &RowStatistics) -> Guess {
        Guess {
            position,
            token: row.token,
            probability: row.probability,
            margin: row.probability - row.runner_up,
            entropy: row.entropy,
            plain_entropy: row.entropy,
            comes_last: false,
        }
    }

    /// Takes the banned tokens out of a row.
    pub(super) fn ban(&self, row: &mut [f64]) {
        for &token in &self.banned {
            row[token as usize] = f64::NEG_INFINITY;
        }
    }

    /// The guess from a row of logits, which is used up; banned tokens are out of it already.
    pub(super) fn guess(&self, position: usize, step: usize, random: Random, row: &mut [f64]) -> Guess {
        match self.draw {
            Draw::Gumbel => self.gumbel(position, step, random, row),
            Draw::Filtered { top_p, top_k } => self.filtered(position, step, random, row, top_p, top_k),
        }
    }

    /// LLaDA, `generate.py`: the noise chooses the token, the plain softmax says how sure it is.
    fn gumbel(&self, position: usize, step: usize, random: Random, row: &mut [f64]) -> Guess {
        let token = if self.temperature > 0.0 {
            let mut best = (f64::NEG_INFINITY, 0);
            random.at(step, position, Stream::Token).each_uniform(row.len(), |token, u| {
                let value = row[token] - self.temperature * (-u.ln()).ln();
                if value > best.0 && token != self.mask_token as usize {
                    best = (value, token);
                }
            });
            best.1 as u32
        } else {
            self.best(row)
        };
        let mut summary = Summary::of(row, self.mask_token);
        let plain_entropy = summary.entropy();
        let comes_last = self.last.contains(&token);
        if !self.last.is_empty() {
            for &token in &self.last {
                row[token as usize] = f64::NEG_INFINITY;
            }
            summary = Summary::of(row, self.mask_token);
        }
        Guess {
            position,
            token,
            probability: summary.probability(row[token as usize]),
            margin: summary.margin(),
            entropy: summary.entropy(),
            plain_entropy,
            comes_last,
        }
    }

    /// Dream, `generation_utils.py`: `sample_tokens`.
    fn filtered(
        &self,
        position: usize,
        step: usize,
        random: Random,
        logits: &mut [f64],
        top_p: f64,
        top_k: usize,
    ) -> Guess {
        let greedy = self.best(logits);
        let plain_entropy = Summary::of(logits, self.mask_token).entropy();
        if self.temperature > 0.0 {
            logits.iter_mut().for_each(|logit| *logit /= self.temperature);
        }
        if top_p < 1.0 {
            keep_top_p(logits, top_p);
        }
        if top_k > 0 && top_k < logits.len() {
            keep_top_k(logits, top_k);
        }
        let summary = Summary::of(logits, self.mask_token);
        let token = if self.temperature > 0.0 {
            let u = random.at(step, position, Stream::Token).uniform(0);
            categorical(logits, &summary, self.mask_token, u).unwrap_or(greedy)
        } else {
            greedy
        };
        Guess {
            position,
            token,
            probability: summary.probability(logits[token as usize]),
            margin: summary.margin(),
            entropy: summary.entropy(),
            plain_entropy,
            comes_last: false,
        }
    }

    /// The first greatest logit, the mask token aside.
    fn best(&self, row: &[f64]) -> u32 {
        let mut best = (f64::NEG_INFINITY, 0);
        for (token, &logit) in row.iter().enumerate() {
            if logit > best.0 && token != self.mask_token as usize {
                best = (logit, token);
            }
        }
        best.1 as u32
    }
}

/// Probability of `token` in the plain softmax of a row of logits.
pub(super) fn softmax_of(row: &[f32], token: u32) -> f64 {
    let row: Vec<f64> = row.iter().map(|&logit| f64::from(logit)).collect();
    Summary::of(&row, u32::MAX).probability(row[token as usize])
}

/// The first greatest logit, `mask_token` aside, and its probability.
pub(super) fn best_of(row: &[f64], mask_token: u32) -> (u32, f64) {
    let summary = Summary::of(row, mask_token);
    let is_best = |(token, &logit): (usize, &f64)| token != mask_token as usize && logit == summary.best[0];
    let token = row.iter().enumerate().position(is_best).unwrap_or(0);
    (token as u32, summary.probability(summary.best[0]))
}

/// A softmax in f64, summed up.
struct Summary {
    greatest: f64,
    total: f64,
    /// Sum of `(l - greatest) e^(l - greatest)`.
    weighted: f64,
    /// Best and second-best logit, the mask token aside.
    best: [f64; 2],
}

impl Summary {
    fn of(logits: &[f64], mask_token: u32) -> Summary {
        let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut summary = Summary { greatest, total: 0.0, weighted: 0.0, best: [f64::NEG_INFINITY; 2] };
        for (token, &logit) in logits.iter().enumerate() {
            let distance = logit - greatest;
            let weight = distance.exp();
            summary.total += weight;
            if weight > 0.0 {
                summary.weighted += distance * weight;
            }
            if token != mask_token as usize {
                if logit > summary.best[0] {
                    summary.best = [logit, summary.best[0]];
                } else if logit > summary.best[1] {
                    summary.best[1] = logit;
                }
            }
        }
        summary
    }

    fn probability(&self, logit: f64) -> f64 {
        (logit - self.greatest).exp() / self.total
    }

    fn margin(&self) -> f64 {
        self.probability(self.best[0]) - self.probability(self.best[1])
    }

    fn entropy(&self) -> f64 {
        self.total.ln() - self.weighted / self.total
    }
}

/// Drops the tokens before which the likelier ones already hold more than `top_p`; the likeliest always stays.
fn keep_top_p(logits: &mut [f64], top_p: f64) {
    let summary = Summary::of(logits, u32::MAX);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    let mut before = 0.0;
    for (rank, &token) in order.iter().enumerate() {
        let probability = summary.probability(logits[token]);
        if rank > 0 && before > top_p {
            logits[token] = f64::NEG_INFINITY;
        }
        before += probability;
    }
}

/// Drops what is below the `top_k`-th greatest logit.
fn keep_top_k(logits: &mut [f64], top_k: usize) {
    let mut sorted = logits.to_vec();
    let (_, &mut bound, _) = sorted.select_nth_unstable_by(top_k - 1, |a, b| b.total_cmp(a));
    logits.iter_mut().filter(|l| **l < bound).for_each(|l| *l = f64::NEG_INFINITY);
}

/// The token at which the running sum of probabilities passes `u` times their total, the mask token aside; `None` if
/// no other token is left.
fn categorical(logits: &[f64], summary: &Summary, mask_token: u32, u: f64) -> Option<u32> {
    let weight = |token: usize| {
        if token == mask_token as usize { 0.0 } else { summary.probability(logits[token]) }
    };
    let total: f64 = (0..logits.len()).map(weight).sum();
    let mut sum = 0.0;
    let mut last = None;
    for token in 0..logits.len() {
        let weight = weight(token);
        if weight > 0.0 {
            sum += weight;
            last = Some(token as u32);
            if sum > u * total {
                break;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(logits: &[f64], temperature: f64, top_p: f64, top_k: usize) -> Vec<usize> {
        let mut logits: Vec<f64> = logits.iter().map(|l| l / temperature).collect();
        if top_p < 1.0 {
            keep_top_p(&mut logits, top_p);
        }
        if top_k > 0 && top_k < logits.len() {
            keep_top_k(&mut logits, top_k);
        }
        (0..logits.len()).filter(|&i| logits[i] > f64::NEG_INFINITY).collect()
    }

    #[test]
    fn case_d11_d12_top_p_after_temperature_and_ties_of_top_k() {
        assert_eq!(kept(&[2.0, 1.0, 0.0], 0.5, 0.8, 0), [0]);
        assert_eq!(kept(&[2.0, 1.0, 0.0], 0.5, 0.0, 0), [0]);
        assert_eq!(kept(&[2.0, 1.0, 0.0], 0.5, 0.95, 0), [0, 1]);
        assert_eq!(kept(&[2.0, 1.0, 0.0], 0.5, 1.0, 0), [0, 1, 2]);
        assert_eq!(kept(&[2.0, 1.0, 1.0, 0.0], 1.0, 1.0, 2), [0, 1, 2]);
        assert_eq!(kept(&[2.0, 1.0, 1.0, 0.0], 1.0, 1.0, 9), [0, 1, 2, 3]);
    }

    fn sampler(draw: Draw, temperature: f64) -> Sampler {
        Sampler { temperature, draw, mask_token: 9, banned: vec![], last: vec![] }
    }

    #[test]
    fn case_d09_which_probability_is_the_confidence() {
        for (draw, wanted) in [(Draw::Gumbel, 0.7311), (Draw::Filtered { top_p: 1.0, top_k: 0 }, 0.8808)] {
            let sampler = sampler(draw, 0.5);
            let mut zeros = 0;
            for position in 0..20_000 {
                let guess = sampler.guess(position, 0, Random::new(1), &mut [1.0, 0.0]);
                if guess.token == 0 {
                    zeros += 1;
                    assert!((guess.probability - wanted).abs() < 1e-4);
                }
            }
            assert!((f64::from(zeros) / 20_000.0 - 0.8808).abs() < 0.009, "{draw:?}: {zeros}");
        }
    }

    #[test]
    fn case_d07_ties_go_to_the_lower_token() {
        let sampler = sampler(Draw::Gumbel, 0.0);
        let guess = |row: &mut [f64]| sampler.guess(0, 0, Random::new(1), row).token;
        assert_eq!(guess(&mut [1.0; 8]), 0);
        assert_eq!(guess(&mut [0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 5.0]), 3);
    }

    #[test]
    fn the_mask_token_is_never_guessed() {
        for draw in [Draw::Gumbel, Draw::Filtered { top_p: 0.9, top_k: 3 }] {
            for temperature in [0.0, 1.0] {
                let mut sampler = sampler(draw, temperature);
                sampler.mask_token = 1;
                for position in 0..50 {
                    let guess = sampler.guess(position, 0, Random::new(5), &mut [0.0, 50.0, 0.5, 0.2]);
                    assert_ne!(guess.token, 1);
                }
            }
        }
    }
}
