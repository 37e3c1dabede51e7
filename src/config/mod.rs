//! From files and environment to a [`Config`], with every problem reported at once.

mod secret;
mod validated;

pub use secret::Secret;
pub use validated::*;
