//! Images: resizing, cropping, colors, boxes, codecs.

mod bmp;
mod color_lowering;
mod crop_lowering;
mod gif;
mod jpeg;
mod pixels;
mod png;
mod resize;
mod resize_lowering;

pub(crate) mod area;
pub(crate) mod bicubic;
pub(crate) mod bilinear;
pub(crate) mod color;
pub(crate) mod combined_suppression;
pub(crate) mod crop_and_resize;
pub(crate) mod decode;
pub(crate) mod draw_boxes;
pub(crate) mod encode;
pub(crate) mod nearest;
pub(crate) mod projective;
pub(crate) mod sample_box;
pub(crate) mod scale_and_translate;
pub(crate) mod suppression;
