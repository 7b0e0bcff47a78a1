#pragma once
// The messages between a rank and a feeder: a program that hands it batches through shared memory.
// docs/data-protocol.md describes the protocol; python/graphpipe_feed.py is a feeder. Both ends lay a batch out alike:
// input after input in the order of the hello, each from a multiple of kFeedAlignment on.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/data_table.h"

namespace graphpipe::wire {

inline constexpr std::string_view kFeedHeader = "graphpipe-feed 1";
inline constexpr int64_t kFeedAlignment = 64;
inline constexpr int64_t kMinFeedSlots = 1, kMaxFeedSlots = 1024;
/// Of any message.
inline constexpr size_t kMaxFeedMessage = size_t{1} << 16;

/// What a rank asks for.
struct FeedHello {
  int ranks = 1, rank = 0;
  /// The first one that it will take, from 1.
  int64_t step = 1;
};
/// The hello and the inputs as a batch has them: `batch` samples in the first axis of those with samples.
std::string feed_hello(const FeedHello& hello, const DataTable& table, int64_t batch);

/// The dims of an input of a batch, the batch axis first.
std::vector<int64_t> feed_dims(const DataEntry& entry, int64_t batch);
/// Where each input of the table begins in a slot, then the bytes of a slot. Absent where that overflows.
std::optional<std::vector<int64_t>> feed_layout(const DataTable& table, int64_t batch);

/// "graphpipe-feed 1\nslots 4\nslot-bytes 4096\n", and perhaps "data NAME\n": what a feeder answers, with the memory.
struct FeedOffer {
  int64_t slots = 0, slot_bytes = 0;
  /// What the feeder calls its data: other names, other data. Empty where it does not say.
  std::string data;
};
inline constexpr size_t kMaxFeedDataName = 256;
std::optional<FeedOffer> parse_feed_offer(std::string_view message);

/// "batch 7 3\n": the batch of step 7, from 1, lies in slot 3, from 0.
struct FeedBatch {
  int64_t step = 0, slot = 0;
};
std::optional<FeedBatch> parse_feed_batch(std::string_view message);

/// "done 7\n": this rank needs the batch of step 7 no more.
std::string feed_done(int64_t step);

}  // namespace graphpipe::wire
