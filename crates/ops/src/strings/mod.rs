//! Strings: bytes, text, regular expressions, names.
