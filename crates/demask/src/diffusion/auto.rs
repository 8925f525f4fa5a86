//! The recipe `auto`: how wide a window and how many refreshes a machine affords.
//!
//! A wider window and more refreshes bring a cached run nearer to one without a cache. What they cost is a matter of the
//! machine: where a pass of all rows takes hardly longer than one of a block's, they are nearly free; where time grows with
//! the rows, they aren't. So the scheduler takes what the recipe `fast` would take by the machine's t(rows) curve, allows
//! itself a tenth more, and spends that on refreshes first (stale keys and values are what spoils answers first) and then
//! on the window. It never gives less than `fast`, whose quality is measured.

use super::cache::CachePolicy;
use super::curve::Curve;
use super::recipe::Recipe;
use super::request::Request;
use crate::model::ModelSpec;

/// Positions that a step decides, about: Fast-dLLM's threshold rule on LLaDA-8B (2.8 tokens per step on GSM8K).
const COMMITS: f64 = 2.8;
/// The part of `fast`'s time that may be spent on top of it.
const SLACK: f64 = 0.1;
/// Windows to choose from, behind them the whole canvas.
const WINDOWS: [usize; 4] = [32, 64, 128, 256];
/// Refresh intervals to choose from, apart from none.
const REFRESHES: [usize; 6] = [1, 2, 3, 4, 6, 8];

/// What was chosen for a canvas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Open positions behind the block that the model sees.
    pub window: usize,
    /// Steps between refreshes; none but those at the beginning of each block.
    pub refresh: Option<usize>,
    /// Seconds that the run takes by the curve.
    pub seconds: f64,
    /// Seconds that the recipe `fast` would take.
    pub fast_seconds: f64,
}

/// A canvas to be decided block by block, as far as its cost goes.
struct Work<'a> {
    curve: &'a Curve,
    /// Positions that were given.
    prompt: usize,
    /// Whether the prompt's rows run only once.
    freeze_prompt: bool,
    /// Whether there are steps that run less than everything that is seen.
    cached: bool,
    open: usize,
    block_length: usize,
}

impl Work<'_> {
    /// Seconds by the curve: the steps that refresh run everything that is seen, the others the block.
    fn seconds(&self, window: usize, refresh: Option<usize>) -> f64 {
        let mut seconds = 0.0;
        for start in (0..self.open).step_by(self.block_length) {
            let block = self.block_length.min(self.open - start);
            let steps = (block as f64 / COMMITS).ceil() as usize;
            let behind = window.min(self.open - start - block);
            let prompt = if self.freeze_prompt && start > 0 { 0 } else { self.prompt };
            let refreshed = if self.cached { refresh.map_or(1, |every| steps.div_ceil(every)) } else { steps };
            seconds += refreshed as f64 * self.curve.at(prompt + start + block + behind);
            seconds += (steps - refreshed) as f64 * self.curve.at(block);
        }
        seconds
    }
}

impl Request {
    /// Whether [`Request::tuned`] has something to choose.
    pub fn is_untuned(&self) -> bool {
        self.recipe == Recipe::Auto && self.window.is_none()
    }

    /// The request as far as it can be checked before a machine is measured: with the window of `fast`.
    pub fn before_tuning(&self) -> Request {
        let window = if self.is_untuned() { Recipe::Fast.row().window } else { self.window };
        Request { window, ..self.clone() }
    }

    /// For the recipe `auto`: fills in window and refresh for a canvas of `given` and `open` positions on a machine with this
    /// curve; what the request says itself stays.
    pub fn tuned(&self, curve: &Curve, spec: &ModelSpec, given: usize, open: usize) -> (Request, Tuning) {
        let fast = Recipe::Fast.row();
        let block_length = self.block_length.or(spec.block_length).or(fast.block_length).unwrap_or(open);
        let freeze_prompt = self.freeze_prompt.unwrap_or(false);
        let cached = self.unmask_rule().is_none_or(|unmask| self.cache_policy(unmask) != CachePolicy::None);
        let block_length = block_length.clamp(1, open.max(1));
        let work = Work { curve, prompt: given, freeze_prompt, cached, open, block_length };
        let narrow = self.window.or(fast.window).unwrap_or(open);
        let fast_seconds = work.seconds(narrow, None);
        let affordable = |window, refresh| work.seconds(window, refresh) <= fast_seconds * (1.0 + SLACK);

        let often = REFRESHES.into_iter().find(|&every| cached && affordable(narrow, Some(every)));
        let refresh = self.refresh.or(often);
        let wider = WINDOWS.into_iter().filter(|&window| window < open).chain([open]).rev();
        let wide = wider.into_iter().find(|&window| window > narrow && affordable(window, refresh));
        let window = self.window.or(wide).unwrap_or(narrow);
        let request = Request { window: Some(window), refresh, ..self.clone() };
        (request, Tuning { window, refresh, seconds: work.seconds(window, refresh), fast_seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Family;

    fn spec() -> ModelSpec {
        ModelSpec {
            architecture: "scripted",
            name: String::new(),
            family: Family::Llada,
            layers: 1,
            width: 2,
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            ffn: 2,
            vocab: 9,
            context: 4096,
            norm_eps: 1e-5,
            rope: demask_compute::RopeSpec {
                style: demask_compute::RopeStyle::Interleaved,
                head_dim: 2,
                theta: 1e4,
                positions: 0,
            },
            mask_token: 8,
            shift_logits: false,
            block_length: None,
        }
    }

    fn auto(points: &[(usize, f64)], given: usize, open: usize) -> Tuning {
        let curve = Curve::new(points.iter().copied()).expect("a curve");
        let request = Request { recipe: Recipe::Auto, max_tokens: open, ..Request::default() };
        assert!(request.is_untuned() && request.settings(&spec(), vec![], open).is_err(), "auto has to be tuned");
        let (tuned, tuning) = request.tuned(&curve, &spec(), given, open);
        let settings = tuned.settings(&spec(), vec![], open).expect("valid");
        assert_eq!((settings.cache.window, settings.cache.refresh), (Some(tuning.window), tuning.refresh));
        assert!(tuning.seconds <= 1.1 * tuning.fast_seconds + 1e-12, "{tuning:?}");
        tuning
    }

    #[test]
    fn machines_get_what_they_afford() {
        // Time that doesn't depend on rows: everything is free.
        let flat = auto(&[(32, 0.1), (512, 0.1)], 150, 256);
        assert_eq!((flat.window, flat.refresh), (256, Some(1)));
        // Time in proportion to rows: no refresh fits, but a somewhat wider window.
        let steep = auto(&[(32, 0.1), (512, 1.6)], 150, 256);
        assert_eq!((steep.window, steep.refresh), (128, None));
        let steeper = auto(&[(32, 0.1), (512, 6.4)], 150, 256);
        assert_eq!((steeper.window, steeper.refresh), (64, None));
        // In between: refreshes before the window.
        let between = auto(&[(32, 0.10), (64, 0.102), (512, 0.130)], 150, 256);
        assert!((2..=8).contains(&between.refresh.expect("some refresh is affordable")), "{between:?}");
        assert!(between.window < 256, "{between:?}");
        // The flatter the curve, the more: neither ever goes back.
        let chosen: Vec<Tuning> =
            [1.6, 0.8, 0.4, 0.2, 0.15, 0.12, 0.101].iter().map(|&t| auto(&[(32, 0.1), (512, t)], 150, 256)).collect();
        let every = |tuning: &Tuning| tuning.refresh.unwrap_or(usize::MAX);
        assert!(chosen.windows(2).all(|pair| every(&pair[0]) >= every(&pair[1])), "{chosen:?}");
    }

    #[test]
    fn small_canvases_and_what_is_given() {
        let one = auto(&[(32, 0.1), (512, 1.6)], 5, 1);
        assert_eq!(one.fast_seconds, one.seconds);
        let short = auto(&[(32, 0.1), (512, 1.6)], 0, 20);
        assert_eq!(short.seconds, short.fast_seconds);
        let curve = Curve::new([(32, 0.1), (512, 0.1)]).expect("a curve");
        let mine = Request { recipe: Recipe::Auto, refresh: Some(5), ..Request::default() };
        let (tuned, _) = mine.tuned(&curve, &spec(), 10, 128);
        assert_eq!((tuned.refresh, tuned.window), (Some(5), Some(128)));
        let mine = Request { recipe: Recipe::Auto, window: Some(40), ..Request::default() };
        let (tuned, _) = mine.tuned(&curve, &spec(), 10, 128);
        assert_eq!((tuned.refresh, tuned.window), (Some(1), Some(40)));
        assert!(mine.settings(&spec(), vec![], 128).is_ok(), "with a window there is nothing to measure");
    }

    /// Without a cache every step runs all rows anyway: a refresh would be refused.
    #[test]
    fn only_a_cache_is_refreshed() {
        let flat = Curve::new([(32, 0.1), (512, 0.1)]).expect("a curve");
        let auto = Request { recipe: Recipe::Auto, ..Request::default() };
        for request in [
            Request { cache: Some(CachePolicy::None), ..auto.clone() },
            Request { unmask: Some(crate::UnmaskRule::Wino), ..auto },
        ] {
            let (tuned, tuning) = request.tuned(&flat, &spec(), 10, 128);
            assert_eq!((tuning.window, tuning.refresh), (128, None));
            assert!(tuned.settings(&spec(), vec![], 128).is_ok(), "{tuned:?}");
        }
    }

    #[test]
    fn the_cost_of_a_run_by_hand() {
        // Two blocks of 32 and one of 16 behind 10: steps 12, 12, 6; t(rows) = rows.
        let curve = Curve::new([(1, 1.0), (1000, 1000.0)]).expect("a curve");
        let work = Work { curve: &curve, prompt: 10, freeze_prompt: false, cached: true, open: 80, block_length: 32 };
        let wanted = (74 + 11 * 32) + (90 + 11 * 32) + (90 + 5 * 16);
        assert_eq!(work.seconds(32, None), f64::from(wanted));
        let refreshed = (3 * 42 + 9 * 32) + (3 * 74 + 9 * 32) + (2 * 90 + 4 * 16);
        assert_eq!(work.seconds(0, Some(4)), f64::from(refreshed));
        let frozen = Work { freeze_prompt: true, ..work };
        assert_eq!(frozen.seconds(32, None), f64::from(wanted - 20));
        let uncached = Work { freeze_prompt: false, cached: false, ..frozen };
        assert_eq!(uncached.seconds(0, None), f64::from(12 * 42 + 12 * 74 + 6 * 90));
    }
}
