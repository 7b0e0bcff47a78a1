#include "runtime/transport/channel.h"

#include <algorithm>

#include "runtime/error.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

std::string range_text(wire::SampleRange range) { return text("[", range.first, ",", range.last, ")"); }

std::string shape_of(const MessageHeader& header) {
  const size_t count = std::min<size_t>(header.rank, MessageHeader::kMaxDims);
  return text(element_name(header.type), shape_text({header.dims, count}));
}

bool same_shape(const MessageHeader& a, const MessageHeader& b) {
  return a.type == b.type && a.rank == b.rank && a.bytes == b.bytes && std::equal(a.dims, std::end(a.dims), b.dims);
}

}  // namespace

PeerFailure failure_told_by(int32_t rank, std::string_view problem) {
  const bool is_left = problem.starts_with(kLeftToRankZero);
  if (is_left) problem.remove_prefix(kLeftToRankZero.size());
  return {.rank = rank,
          .what = text("failed: ", problem),
          .last = std::nullopt,
          .told = !is_left,
          .left_to_rank_zero = is_left};
}

Severity severity_for(const PeerFailure& failure, int32_t own_rank) {
  const bool is_known = failure.told || (failure.left_to_rank_zero && own_rank != 0);
  return is_known ? Severity::kNote : Severity::kError;
}

const char* channel_kind_name(ChannelKind kind) {
  constexpr const char* kNames[] = {"forward", "backward", "reduce", "server", "share",
                                    "weights", "gather",   "total",  "sums"};
  static_assert(std::size(kNames) == static_cast<size_t>(ChannelKind::kSums) + 1);
  return kNames[static_cast<size_t>(kind)];
}

std::string difference(const MessageHeader& expected, const MessageHeader& received, bool any_size) {
  if (received.magic != MessageHeader::kMagic) return "it is not a message of ours";
  if (received.plan != expected.plan) return "it belongs to another plan";
  if (received.key != expected.key) return "it belongs to another channel";
  if (received.bytes < 0) return "its size is negative";
  if (any_size) return "";
  if (received.step != expected.step)
    return text("it belongs to step ", received.step + 1, " where ", expected.step + 1, " was expected");
  if (received.range != expected.range)
    return "its samples are " + range_text(received.range) + " where " + range_text(expected.range) + " were expected";
  if (received.part != expected.part)
    return text("it is part ", received.part, " where ", expected.part, " was expected");
  if (wire::find_element_type(received.type) == nullptr) return "its type is unknown";
  if (!same_shape(expected, received))
    return "it holds " + shape_of(received) + " where " + shape_of(expected) + " was expected";
  return "";
}

void check_received(const Message& expected, const MessageHeader& received) {
  const std::string why = difference(expected.header, received, expected.sink != nullptr);
  if (why.empty()) return;
  const ChannelKey& key = expected.header.key;
  fail(Code::kPeerFailed,
       text("refused a message on channel ", channel_kind_name(key.kind), " ", key.index, " (", key.from, " to ",
            key.to, "): ", why),
       "make sure that all ranks run programs of one generated folder");
}

}  // namespace graphpipe::runtime
