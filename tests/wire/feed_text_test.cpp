// The messages between a rank and a feeder, and where both put the inputs of a batch.

#include "wire/feed_text.h"

#include <doctest/doctest.h>

#include <string>

using namespace graphpipe::wire;

namespace {

const DataTable kInputs{
    .batch = 2,
    .entries = {{.name = "to kens", .type = ElementType::kInt64, .dims = {1, 3}, .ids = {-5, 5}},
                {.name = "label", .type = ElementType::kInt32, .dims = {2}, .ids = {}},
                {.name = "mask", .type = ElementType::kFloat32, .batch_axis = -1, .dims = {2, 2}, .ids = {}}}};

}  // namespace

TEST_CASE("a hello names the inputs as a batch has them") {
  CHECK(feed_hello({.ranks = 3, .rank = 1, .step = 5}, kInputs, 4) ==
        "graphpipe-feed 1\nranks 3\nrank 1\nstep 5\nbatch 4\ninput to%20kens int64 [4,3]\ninput label int32 [8]\n"
        "input mask float32 [2,2]\n");
}

TEST_CASE("inputs lie in their order, each from a multiple of 64 bytes on") {
  const auto layout = feed_layout(kInputs, 4);
  REQUIRE(layout.has_value());
  CHECK(*layout == std::vector<int64_t>{0, 128, 192, 256});  // 96, 32 and 16 bytes
  CHECK_FALSE(feed_layout(kInputs, int64_t{1} << 60).has_value());
  CHECK_FALSE(feed_layout(kInputs, int64_t{1} << 62).has_value());
}

TEST_CASE("what a feeder says is read, or refused as a whole") {
  const auto offer = parse_feed_offer("graphpipe-feed 1\nslots 4\nslot-bytes 256\n");
  REQUIRE(offer.has_value());
  CHECK(offer->slots == 4);
  CHECK(offer->slot_bytes == 256);
  CHECK(offer->data.empty());
  const auto named = parse_feed_offer("graphpipe-feed 1\nslots 4\nslot-bytes 256\ndata a%20b\n");
  REQUIRE(named.has_value());
  CHECK(named->data == "a b");
  CHECK_FALSE(parse_feed_offer("graphpipe-feed 1\nslots 4\nslot-bytes 256\ndata \n").has_value());
  CHECK_FALSE(parse_feed_offer("graphpipe-feed 1\nslots 4\nslot-bytes 256\ndata %2\n").has_value());
  CHECK_FALSE(
      parse_feed_offer("graphpipe-feed 1\nslots 4\nslot-bytes 256\ndata " + std::string(257, 'a') + "\n").has_value());
  for (const std::string bad :
       {"", "graphpipe-feed 2\nslots 4\nslot-bytes 256\n", "graphpipe-feed 1\nslots 0\nslot-bytes 256\n",
        "graphpipe-feed 1\nslots 1025\nslot-bytes 256\n", "graphpipe-feed 1\nslots 4\nslot-bytes -1\n",
        "graphpipe-feed 1\nslots 4\nslot-bytes 256", "graphpipe-feed 1\nslots 4\nslot-bytes 256\nmore\n",
        "graphpipe-feed 1\nslots 4x\nslot-bytes 256\n",
        "graphpipe-feed 1\nslots 99999999999999999999\nslot-bytes 1\n"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_feed_offer(bad).has_value());
  }
  const auto batch = parse_feed_batch("batch 7 3\n");
  REQUIRE(batch.has_value());
  CHECK(batch->step == 7);
  CHECK(batch->slot == 3);
  for (const std::string bad :
       {"", "batch\n", "batch 7\n", "batch 7 3", "batch 7 3 1\n", "batch 7 x\n", "batch  7 3\n"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_feed_batch(bad).has_value());
  }
  CHECK(feed_done(7) == "done 7\n");
}
