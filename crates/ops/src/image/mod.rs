//! Images: resizing, cropping, colours, boxes, codecs.

mod pixels;
mod resize;

pub(crate) mod area;
pub(crate) mod bicubic;
pub(crate) mod bilinear;
pub(crate) mod crop_and_resize;
pub(crate) mod nearest;
pub(crate) mod scale_and_translate;
