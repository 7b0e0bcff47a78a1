// What a receiver believes of a message's header.

#include "runtime/transport/channel.h"

#include <doctest/doctest.h>

#include <iterator>

#include "runtime/error.h"
#include "wire/element_type.h"

namespace graphpipe::runtime {
namespace {

bool takes(ElementType type) {
  Message expected{.header = {.type = type, .bytes = 8}};
  try {
    check_received(expected, expected.header);
  } catch (const RunError&) {
    return false;
  }
  return true;
}

TEST_CASE("messages may hold every element type, and no other number") {
  for (const wire::ElementTypeInfo& info : wire::kElementTypes) {
    CAPTURE(info.long_name);
    CHECK(takes(info.type));
  }
  CHECK_FALSE(takes(static_cast<ElementType>(std::size(wire::kElementTypes))));
  CHECK_FALSE(takes(static_cast<ElementType>(255)));
}

}  // namespace
}  // namespace graphpipe::runtime
