//! A step's work besides its matrix products, for f32 on a CPU: declarations of trainer/bridge/fused.cpp, and safe functions
//! over them.
//!
//! In: contiguous f32 tensors on the CPU. Out: what the operations of torch give in several passes over memory, within
//! rounding; where a gradient is said to exist, it exists once. Always holds: results do not depend on the number of
//! threads. Leaves to others whether these or torch's operations are used ([`crate::model`], [`crate::optimizer`]).
//!
//! Legend: N rows (tokens), H hidden size, F feed-forward size, L tokens a sequence, R rotary dimensions, V vocabulary.

// The workspace denies unsafe code; calling C++ is not to be had without.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

use tch::{Device, Kind, Tensor};

use crate::foreign::call;

/// Whether rows of this size can be taken: multiples of the lanes of the widest processor.
pub fn takes(size: i64) -> bool {
    size % 16 == 0
}

/// Whether a tensor can be taken.
pub fn takes_tensor(tensor: &Tensor) -> bool {
    tensor.kind() == Kind::Float && tensor.device() == Device::Cpu && tensor.is_contiguous()
}

unsafe extern "C" {
    fn hds_fused_attention(
        qkv: *mut c_void,
        bias: *mut c_void,
        cosines: *mut c_void,
        sines: *mut c_void,
        length: i64,
        heads: i64,
        out: *mut *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_fused_gelu(
        input: *mut c_void,
        bias: *mut c_void,
        out: *mut *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_fused_norms(
        input: *mut c_void,
        gain: *mut c_void,
        bias: *mut c_void,
        second_gain: *mut c_void,
        second_bias: *mut c_void,
        epsilon: f64,
        out: *mut *mut c_void,
        second_out: *mut *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_fused_cross_entropy(
        logits: *mut c_void,
        targets: *mut c_void,
        factors: *mut c_void,
        losses: *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_fused_adamw(
        weights: *mut c_void,
        gradient: *mut c_void,
        first: *mut c_void,
        second: *mut c_void,
        gradient_factor: f64,
        decay: f64,
        first_rate: f64,
        second_rate: f64,
        root_scale: f64,
        epsilon: f64,
        moves: c_int,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_fused_set_gradient(
        parameter: *mut c_void,
        gradient: *mut c_void,
        text: *mut c_char,
        size: usize,
    ) -> c_int;
    fn hds_keep_memory();
}

/// Causal attention [N, H] of rotated heads. `qkv` [N, 3 H] are the products, without their `bias` [3 H], each head's query, key
/// and value side by side; `cosines` and `sines` [L, R/2].
pub fn attention(
    qkv: &Tensor,
    bias: &Tensor,
    cosines: &Tensor,
    sines: &Tensor,
    heads: i64,
) -> Tensor {
    let length = cosines.size()[0];
    result("attention", |out, text, size| {
        // SAFETY: the four are at::Tensors that live through the call, which checks what they are; `out` is a place for
        // one pointer; `text` has `size` bytes.
        unsafe {
            hds_fused_attention(
                pointer(qkv),
                pointer(bias),
                pointer(cosines),
                pointer(sines),
                length,
                heads,
                out,
                text,
                size,
            )
        }
    })
}

/// gelu(`input` + `bias`), exact; [N, F] and [F].
pub fn gelu(input: &Tensor, bias: &Tensor) -> Tensor {
    result("gelu", |out, text, size| {
        // SAFETY: as in `attention`.
        unsafe { hds_fused_gelu(pointer(input), pointer(bias), out, text, size) }
    })
}

/// A layer norm of `input` [N, H] by gain and bias [H]; differentiable.
pub fn norm(input: &Tensor, (gain, bias): (&Tensor, &Tensor), epsilon: f64) -> Tensor {
    let none = std::ptr::null_mut();
    result("layer norm", |out, text, size| {
        // SAFETY: as in `attention`; without a second gain nothing is written to a second place.
        unsafe {
            hds_fused_norms(
                pointer(input),
                pointer(gain),
                pointer(bias),
                none,
                none,
                epsilon,
                out,
                std::ptr::null_mut(),
                text,
                size,
            )
        }
    })
}

/// Two layer norms of the same `input` [N, H], each by its gain and bias [H]; differentiable.
pub fn two_norms(
    input: &Tensor,
    first: (&Tensor, &Tensor),
    second: (&Tensor, &Tensor),
    epsilon: f64,
) -> (Tensor, Tensor) {
    let mut second_out = std::ptr::null_mut();
    let out = result("layer norms", |out, text, size| {
        // SAFETY: as in `attention`; `second_out` is a place for one pointer.
        unsafe {
            hds_fused_norms(
                pointer(input),
                pointer(first.0),
                pointer(first.1),
                pointer(second.0),
                pointer(second.1),
                epsilon,
                out,
                &raw mut second_out,
                text,
                size,
            )
        }
    });
    // SAFETY: the function has succeeded, and so has made both as in `result`.
    (out, unsafe { Tensor::from_ptr(second_out.cast()) })
}

/// Turns logits [N, V] in place into the gradient of Σ `factors` · losses with respect to them, and writes the losses
/// −log softmax at `targets` (i64); all of them [N].
pub fn cross_entropy(logits: &Tensor, targets: &Tensor, factors: &Tensor, losses: &Tensor) {
    // SAFETY: as in `attention`.
    let done = call(|text, size| unsafe {
        hds_fused_cross_entropy(
            pointer(logits),
            pointer(targets),
            pointer(factors),
            pointer(losses),
            text,
            size,
        )
    });
    expect(done, "cross-entropy");
}

/// Numbers of a step of AdamW that are the same for all weights: a weight decays, and moves by
/// first moment / (`root_scale` · √second moment + `epsilon`).
pub struct AdamWStep {
    /// Factor of the gradients.
    pub gradient_factor: f64,
    /// 1 − β₁.
    pub first_rate: f64,
    /// 1 − β₂.
    pub second_rate: f64,
    /// With the learning rate and the corrections of both moments.
    pub root_scale: f64,
    /// With the learning rate and the correction of the first moment.
    pub epsilon: f64,
    /// Whether the weights move at all.
    pub moves: bool,
}

/// One step on flat `[weights, gradient, first moment, second moment]` of one length; the weights are multiplied by `decay`.
pub fn adamw(flat: &[Tensor; 4], step: &AdamWStep, decay: f64) {
    let [weights, gradient, first, second] = flat.each_ref().map(pointer);
    // SAFETY: as in `attention`.
    let done = call(|text, size| unsafe {
        hds_fused_adamw(
            weights,
            gradient,
            first,
            second,
            step.gradient_factor,
            decay,
            step.first_rate,
            step.second_rate,
            step.root_scale,
            step.epsilon,
            c_int::from(step.moves),
            text,
            size,
        )
    });
    expect(done, "AdamW");
}

/// Makes `gradient` the gradient of a leaf, or leaves it without one.
pub fn set_gradient(parameter: &Tensor, gradient: Option<&Tensor>) {
    let gradient = gradient.map_or(std::ptr::null_mut(), pointer);
    // SAFETY: as in `attention`; null stands for none.
    let done = call(|text, size| unsafe {
        hds_fused_set_gradient(pointer(parameter), gradient, text, size)
    });
    expect(done, "gradient of a parameter");
}

/// See [`crate::memory::keep`].
pub fn keep_memory() {
    // SAFETY: sets parameters of malloc, and a variable of the environment; called first in `main`, by the only thread.
    unsafe { hds_keep_memory() }
}

fn pointer(tensor: &Tensor) -> *mut c_void {
    tensor.as_ptr().cast_mut().cast()
}

/// Panics with torch's message, as tch's own operations do.
fn expect(done: Result<(), String>, name: &str) {
    if let Err(message) = done {
        panic!("{name}: {message}");
    }
}

/// The tensor that a function puts into its first argument.
fn result(
    name: &str,
    function: impl FnOnce(*mut *mut c_void, *mut c_char, usize) -> c_int,
) -> Tensor {
    let mut out = std::ptr::null_mut();
    expect(call(|text, size| function(&raw mut out, text, size)), name);
    // SAFETY: `out` is an at::Tensor made with `new` and owned by nobody else, as tch takes them.
    unsafe { Tensor::from_ptr(out.cast()) }
}

#[cfg(test)]
#[path = "fused_tests.rs"]
mod tests;
