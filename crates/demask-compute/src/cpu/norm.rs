//! Row-wise operations between the projections: RMSNorm and SwiGLU's gate.

/// `out = x / sqrt(mean(x^2) + eps) * weight`.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let square: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
    let scale = (1.0 / (square / x.len() as f64 + f64::from(eps)).sqrt()) as f32;
    for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

/// `out = gate / (1 + e^-gate) * up`.
pub(super) fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = gate / (1.0 + (-gate).exp()) * up;
    }
}
