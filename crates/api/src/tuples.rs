//! The arities of tuples for which traits are implemented.

/// Calls the macro `$implement` for tuples of 1 to 8 members. For each member it gets two names for
/// types and the position: `A A2 0, B B2 1` for a pair.
macro_rules! for_tuples {
    ($implement:ident) => {
        $implement!(A A2 0);
        $implement!(A A2 0, B B2 1);
        $implement!(A A2 0, B B2 1, C C2 2);
        $implement!(A A2 0, B B2 1, C C2 2, D D2 3);
        $implement!(A A2 0, B B2 1, C C2 2, D D2 3, E E2 4);
        $implement!(A A2 0, B B2 1, C C2 2, D D2 3, E E2 4, F F2 5);
        $implement!(A A2 0, B B2 1, C C2 2, D D2 3, E E2 4, F F2 5, G G2 6);
        $implement!(A A2 0, B B2 1, C C2 2, D D2 3, E E2 4, F F2 5, G G2 6, H H2 7);
    };
}
