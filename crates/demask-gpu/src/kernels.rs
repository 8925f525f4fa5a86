//! The kernels: PTX modules, as `kernels/build.sh` made them, and the functions in them.

/// A PTX module.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its text.
    pub ptx: &'static str,
}

/// A function of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Where the module stands in [`MODULES`].
    pub module: usize,
    /// The function.
    pub function: &'static str,
}

macro_rules! modules {
    ($($constant:ident = $name:literal),* $(,)?) => {
        /// Every module, in the order of the constants beside it.
        pub static MODULES: &[Module] = &[$(
            Module { name: $name, ptx: include_str!(concat!("../kernels/ptx/", $name, ".ptx")) },
        )*];
        modules!(@number 0usize; $($constant)*);
    };
    (@number $at:expr; $constant:ident $($rest:ident)*) => {
        #[allow(dead_code)] // `peaks` is for measuring only, and found by its name
        pub(crate) const $constant: usize = $at;
        modules!(@number $at + 1; $($rest)*);
    };
    (@number $at:expr;) => {};
}

modules! {
    ROWS = "rows",
    WIDE = "wide",
    ATTENTION = "attention",
    SAMPLE = "sample",
    PEAKS = "peaks",
    CODES_4111 = "codes_4111",
    CODES_5111 = "codes_5111",
    CODES_6201 = "codes_6201",
    CODES_8100 = "codes_8100",
    CODES_8101 = "codes_8101",
    CODES_4100 = "codes_4100",
    CODES_4110 = "codes_4110",
    CODES_5100 = "codes_5100",
    CODES_5110 = "codes_5110",
    CODES_4211 = "codes_4211",
    CODES_4201 = "codes_4201",
}

/// A function of the module of row operations.
pub(crate) const fn rows(function: &'static str) -> Kernel {
    Kernel { module: ROWS, function }
}
