// What a receiver believes of a message's header.

#include "runtime/transport/channel.h"

#include <doctest/doctest.h>

#include <iterator>
#include <string>

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

TEST_CASE("a failure is an error to one rank at least, and a note where another has reported it") {
  const PeerFailure own = failure_told_by(2, "device 2 has not enough memory");
  CHECK(own.what == "failed: device 2 has not enough memory");
  CHECK(own.told);
  for (const int32_t rank : {0, 1}) CHECK(severity_for(own, rank) == Severity::kNote);

  // Rank 2 leaves what all ranks meet to rank 0, which may not have met it yet.
  const PeerFailure shared = failure_told_by(2, std::string(kLeftToRankZero) + "the feeder is lost");
  CHECK(shared.what == "failed: the feeder is lost");
  CHECK_FALSE(shared.told);
  CHECK(severity_for(shared, 0) == Severity::kError);
  CHECK(severity_for(shared, 1) == Severity::kNote);

  const PeerFailure died{.rank = 2, .what = "died", .last = std::nullopt};
  for (const int32_t rank : {0, 1}) CHECK(severity_for(died, rank) == Severity::kError);
}

}  // namespace
}  // namespace graphpipe::runtime
