//! Einsum equations: `ab,bc->ac`, with `...` for broadcast dimensions.

use smallvec::SmallVec;
use thalweg_tensor::{Result, ensure, err};

/// A dimension label: a byte of the equation, or [`UNNAMED`] plus the distance from the last
/// dimension of the ellipsis.
pub(crate) type Label = u16;

/// Labels from here on are ellipsis dimensions, along which operands broadcast.
pub(crate) const UNNAMED: Label = 256;

/// The labels of one operand, in order.
pub(crate) type Labels = SmallVec<[Label; 8]>;

/// A parsed equation.
#[derive(Clone, Debug)]
pub(crate) struct Equation {
    text: String,
    inputs: SmallVec<[Subscripts; 2]>,
    output: Subscripts,
}

/// The subscripts of one operand.
#[derive(Clone, Debug)]
struct Subscripts {
    named: SmallVec<[u8; 8]>,
    /// Index of the name before which the ellipsis is.
    ellipsis: Option<usize>,
}

impl Subscripts {
    fn parse(text: &str, equation: &str) -> Result<Subscripts> {
        let mut subscripts = Subscripts { named: SmallVec::new(), ellipsis: None };
        let mut rest = text.as_bytes();
        while let [byte, tail @ ..] = rest {
            if let [b'.', b'.', b'.', tail @ ..] = rest {
                ensure!(
                    subscripts.ellipsis.is_none(),
                    InvalidArgument,
                    "an operand of the einsum equation '{equation}' has two ellipses"
                );
                subscripts.ellipsis = Some(subscripts.named.len());
                rest = tail;
                continue;
            }
            ensure!(
                *byte != b'.',
                InvalidArgument,
                "the einsum equation '{equation}' has a dot that is no part of an ellipsis (...)"
            );
            subscripts.named.push(*byte);
            rest = tail;
        }
        Ok(subscripts)
    }

    /// The labels if the ellipsis stands for this many dimensions.
    fn labels(&self, unnamed: usize) -> Labels {
        let name = |&byte: &u8| Label::from(byte);
        let Some(at) = self.ellipsis else { return self.named.iter().map(name).collect() };
        let dims = (0..unnamed).rev().map(|from_last| UNNAMED + from_last as Label);
        let (before, after) = self.named.split_at(at);
        before.iter().map(name).chain(dims).chain(after.iter().map(name)).collect()
    }
}

impl Equation {
    /// Parses an equation for `operands` operands.
    pub(crate) fn parse(text: &str, operands: usize) -> Result<Equation> {
        let (inputs, output) =
            text.split_once("->").filter(|(_, output)| !output.contains("->")).ok_or_else(
                || err!(InvalidArgument, "Expecting exactly one '->' in einsum equation: {text}"),
            )?;
        let inputs: SmallVec<[Subscripts; 2]> =
            inputs.split(',').map(|part| Subscripts::parse(part, text)).collect::<Result<_>>()?;
        ensure!(
            inputs.len() <= 2,
            InvalidArgument,
            "Expecting 1 or 2 input subscripts in equation '{text}' but got: {}",
            inputs.len()
        );
        ensure!(
            inputs.len() == operands,
            InvalidArgument,
            "Expected {} inputs but got: {operands}",
            inputs.len()
        );
        let output = Subscripts::parse(output, text)?;
        for name in &output.named {
            ensure!(
                inputs.iter().any(|input| input.named.contains(name)),
                InvalidArgument,
                "the output of the einsum equation '{text}' has a label that no input has"
            );
        }
        Ok(Equation { text: text.to_owned(), inputs, output })
    }

    /// Whether the rank of the output follows from the ranks of the inputs' ellipses.
    pub(crate) fn output_has_ellipsis(&self) -> bool {
        self.output.ellipsis.is_some()
    }

    /// The labels of input `i`, which has this rank.
    pub(crate) fn input_labels(&self, i: usize, rank: usize) -> Result<Labels> {
        let subscripts = &self.inputs[i];
        let named = subscripts.named.len();
        match subscripts.ellipsis {
            None => ensure!(
                rank == named,
                InvalidArgument,
                "Expected input {i} to have rank {named} but got: {rank}"
            ),
            Some(_) => ensure!(
                rank >= named,
                InvalidArgument,
                "Expected input {i} to have rank at least {named} but got: {rank}"
            ),
        }
        Ok(subscripts.labels(rank - named))
    }

    /// The labels of the output if the ellipses stand for at most this many dimensions.
    pub(crate) fn output_labels(&self, unnamed: usize) -> Result<Labels> {
        ensure!(
            unnamed == 0 || self.output.ellipsis.is_some(),
            InvalidArgument,
            "Output contains {unnamed} broadcasting dimension(s) but no ellipsis (...) was found \
                in the output subscripts of '{}'.",
            self.text
        );
        Ok(self.output.labels(unnamed))
    }
}

/// Number of ellipsis dimensions among these labels.
pub(crate) fn count_unnamed(labels: &[Label]) -> usize {
    labels.iter().filter(|&&label| label >= UNNAMED).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::code;
    use thalweg_tensor::Code;

    #[test]
    fn labels_follow_the_rank() {
        let equation = Equation::parse("a...b,b->...a", 2).unwrap();
        let (a, b) = (Label::from(b'a'), Label::from(b'b'));
        assert_eq!(equation.input_labels(0, 4).unwrap()[..], [a, UNNAMED + 1, UNNAMED, b]);
        assert_eq!(equation.input_labels(0, 2).unwrap()[..], [a, b]);
        assert_eq!(equation.input_labels(1, 1).unwrap()[..], [b]);
        assert_eq!(equation.output_labels(1).unwrap()[..], [UNNAMED, a]);
        assert!(equation.input_labels(0, 1).is_err() && equation.input_labels(1, 2).is_err());
        assert_eq!(
            code(Equation::parse("a...->a", 1).unwrap().output_labels(1)),
            Some(Code::InvalidArgument)
        );
    }

    #[test]
    fn broken_equations() {
        for (text, operands) in [
            ("", 1),
            ("ab", 1),
            ("a->a->a", 1),
            ("a,b,c->abc", 3),
            ("a,b->ab", 1),
            ("a->b", 1),
            ("......a->a", 1),
            ("a..->a", 1),
            ("a->aab", 1),
        ] {
            let error = Equation::parse(text, operands).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{text:?}");
        }
        assert!(Equation::parse("->", 1).is_ok() && Equation::parse(",->", 2).is_ok());
    }
}
