#include "support/id.h"

#include <doctest/doctest.h>

#include <type_traits>

#include "support/text.h"
#include "support/units.h"

namespace graphpipe {
namespace {

using AppleId = Id<struct AppleTag>;
using PearId = Id<struct PearTag>;

TEST_CASE("ids of different kinds do not mix") {
  CHECK_FALSE(std::is_convertible_v<AppleId, PearId>);
  CHECK_FALSE(std::is_convertible_v<size_t, AppleId>);
  CHECK_FALSE(std::is_convertible_v<Bytes, Samples>);
}

TEST_CASE("an id names nothing until it is given an index") {
  CHECK_FALSE(AppleId().valid());
  CHECK(AppleId(0).valid());
  CHECK(AppleId(3).index() == 3);
  CHECK(AppleId(1) < AppleId(2));
  CHECK(AppleId(7) < AppleId());
  CHECK(text(AppleId(4), " ", AppleId()) == "4 none");
}

TEST_CASE("maps and sets by id") {
  IdMap<AppleId, int> map(2, 5);
  CHECK(map.push_back(7) == AppleId(2));
  CHECK(map[AppleId(0)] == 5);
  map[AppleId(0)] = 1;
  int sum = 0;
  for (AppleId id : ids<AppleId>(map.size())) sum += map[id];
  CHECK(sum == 13);

  IdSet<AppleId> set(1);
  CHECK_FALSE(set.contains(AppleId(9)));
  CHECK(set.insert(AppleId(9)));
  CHECK_FALSE(set.insert(AppleId(9)));
  CHECK(set.contains(AppleId(9)));
  set.erase(AppleId(9));
  set.erase(AppleId(100));
  CHECK_FALSE(set.contains(AppleId(9)));
}

TEST_CASE("quantities add and compare with their own kind and scale with numbers") {
  CHECK(2_KiB + 1_B == Bytes(2049));
  CHECK(3 * 1_MiB > 2_MiB);
  CHECK((Bytes(100) / BytesPerSecond(50)).count == 2.0);
  CHECK((Flops(10) / FlopsPerSecond(4)).count == 2.5);
}

}  // namespace
}  // namespace graphpipe
