//! Images: codecs, resizing, cropping, colour, boxes.
