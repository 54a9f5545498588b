// Whether the weak points of the official component are kept, byte for byte, or mended. docs/recipe.md lists them.
#pragma once

namespace deepinfer::recipe {

enum class Conformance {
  official,  ///< what deepseek-recipe 0.2.0 does
  improved   ///< the same, but where that misleads users or breaks their JSON
};

}  // namespace deepinfer::recipe
