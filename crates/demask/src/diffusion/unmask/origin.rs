//! Dream's `origin`: every open position is decided with the schedule's probability, whatever the guesses.

use super::{Step, Unmasker, unmask};
use crate::diffusion::canvas::Transfer;
use crate::diffusion::random::Stream;
use crate::diffusion::sampler::Guess;
use crate::diffusion::schedule::timestep_fraction;
use crate::diffusion::settings::Schedule;

pub(super) struct Origin {
    pub(super) schedule: Schedule,
}

impl Origin {
    fn chooses(&self, step: &Step<'_>, position: usize) -> bool {
        let local = step.number - step.block.first_step;
        let eps = match self.schedule {
            Schedule::Timestep { eps } => eps,
            Schedule::Even => 0.0,
        };
        let chance = timestep_fraction(local, step.block.steps, eps);
        chance >= 1.0 || step.random.at(step.number, position, Stream::Position).uniform(0) < chance
    }
}

impl Unmasker for Origin {
    fn acts(&mut self, step: &Step<'_>) -> bool {
        step.canvas.open_in(step.block.range.clone()).any(|position| self.chooses(step, position))
    }

    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let chosen = guesses.iter().filter(|guess| self.chooses(step, guess.position));
        Transfer { edits: chosen.map(|guess| unmask(step.canvas, guess, guess.probability)).collect() }
    }
}
