#include "wire/window_shape.h"

#include <doctest/doctest.h>

using namespace graphpipe::wire;

TEST_CASE("the workspace of windows that no machine holds is too large, and no number that has run over") {
  WindowShape shape{.samples = 1,
                    .channels = 3,
                    .height = 1,
                    .width = int64_t{1} << 44,
                    .kernel_width = int64_t{1} << 20,
                    .places_down = 1};
  shape.places_right = shape.width - shape.span_right() + 1;
  CHECK(window_floats(shape, 8) == int64_t{1} << 56);
  shape.kernel_width = 10;
  shape.places_right = shape.width - shape.span_right() + 1;
  CHECK(window_floats(shape, 8) == 10 * shape.places_right);
}
