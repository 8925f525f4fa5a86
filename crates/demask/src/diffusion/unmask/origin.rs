//! Dream's `origin`: every open position is decided with the schedule's probability, whatever the guesses.

use super::{Step, Unmasker, transfer};
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
        step.open().any(|position| self.chooses(step, position))
    }

    fn step(&mut self, step: &Step<'_>, guesses: &[Guess]) -> Transfer {
        let sure: Vec<f64> = guesses.iter().map(|guess| guess.probability).collect();
        let chosen = (0..guesses.len()).filter(|&i| self.chooses(step, guesses[i].position)).collect();
        transfer(step, guesses, &sure, chosen)
    }
}
