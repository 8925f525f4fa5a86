//! Run diffusion language models: text, models and the denoising loop.
