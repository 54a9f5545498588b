#!/usr/bin/env python3
"""Writes the images beside this file: inputs and what the official preprocessor makes of them (a lossy WebP).

Needs deepseek-recipe 0.2.0 and pillow 13. NAME.png with detail high gives NAME.high.webp, with detail low NAME.low.webp.
"""
import io
import pathlib
import random

import deepseek_recipe
from PIL import Image

HERE = pathlib.Path(__file__).parent


def stripes(width, height, period):
    image = Image.new("L", (width, height))
    image.putdata([255 * (((x // period) + (y // period)) % 2) for y in range(height) for x in range(width)])
    return image.convert("RGB")


def waves(width, height, seed):
    source = random.Random(seed)
    small = Image.new("L", (width // 16, height // 16))  # grey: WebP halves the resolution of colours
    small.putdata([source.randrange(256) for _ in range(small.width * small.height)])
    return small.resize((width, height), Image.Resampling.BICUBIC).convert("RGB")


def main():
    images = {"stripes": stripes(560, 401, 5), "waves": waves(520, 401, 1), "thin": stripes(3949, 6, 3), "small": waves(64, 48, 2)}
    for name, image in images.items():
        data = io.BytesIO()
        image.save(data, "PNG", optimize=True)
        (HERE / f"{name}.png").write_bytes(data.getvalue())
        for detail in ("high", "low"):
            options = deepseek_recipe.PreprocessOptions(detail, 8000, 512)
            out = deepseek_recipe.OpenCvImagePreprocessor().preprocess(data.getvalue(), options)
            (HERE / f"{name}.{detail}.webp").write_bytes(out.data)


if __name__ == "__main__":
    main()
