#include "wire/feed_text.h"

#include "support/text.h"
#include "wire/element_type.h"

namespace graphpipe::wire {

std::vector<int64_t> feed_dims(const DataEntry& entry, int64_t batch) {
  std::vector<int64_t> dims = entry.dims;
  if (entry.has_samples() && !dims.empty() && __builtin_mul_overflow(dims[0], batch, &dims[0])) dims[0] = -1;
  return dims;
}

std::string feed_hello(const FeedHello& hello, const DataTable& table, int64_t batch) {
  std::string out =
      text(kFeedHeader, "\nranks ", hello.ranks, "\nrank ", hello.rank, "\nstep ", hello.step, "\nbatch ", batch, "\n");
  for (const DataEntry& entry : table.entries)
    out += text("input ", encoded_name(entry.name), " ", element_name(entry.type), " ",
                shape_text(feed_dims(entry, batch)), "\n");
  return out;
}

std::optional<std::vector<int64_t>> feed_layout(const DataTable& table, int64_t batch) {
  std::vector<int64_t> offsets;
  int64_t next = 0;
  for (const DataEntry& entry : table.entries) {
    offsets.push_back(next);
    int64_t bytes = element_size(entry.type);
    for (const int64_t dim : feed_dims(entry, batch))
      if (dim < 0 || __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
    if (__builtin_add_overflow(next, bytes, &next) || __builtin_add_overflow(next, kFeedAlignment - 1, &next))
      return std::nullopt;
    next -= next % kFeedAlignment;
  }
  offsets.push_back(next);
  return offsets;
}

std::optional<FeedOffer> parse_feed_offer(std::string_view message) {
  std::vector<std::string_view> lines = split(message, "\n");
  FeedOffer offer;
  if (lines.size() == 5 && lines[3].starts_with("data ")) {
    const std::optional<std::string> name = decoded_name(lines[3].substr(5));
    if (!name || name->empty() || name->size() > kMaxFeedDataName) return std::nullopt;
    offer.data = *name;
    lines.erase(lines.begin() + 3);
  }
  if (lines.size() != 4 || lines[0] != kFeedHeader || !lines[1].starts_with("slots ") ||
      !lines[2].starts_with("slot-bytes ") || !lines[3].empty() || !read_number(lines[1].substr(6), offer.slots) ||
      !read_number(lines[2].substr(11), offer.slot_bytes))
    return std::nullopt;
  if (offer.slots < kMinFeedSlots || offer.slots > kMaxFeedSlots || offer.slot_bytes < 0) return std::nullopt;
  return offer;
}

std::optional<FeedBatch> parse_feed_batch(std::string_view message) {
  if (!message.starts_with("batch ") || !message.ends_with("\n")) return std::nullopt;
  const std::vector<std::string_view> words = split(message.substr(6, message.size() - 7), " ");
  FeedBatch batch;
  if (words.size() != 2 || !read_number(words[0], batch.step) || !read_number(words[1], batch.slot))
    return std::nullopt;
  return batch;
}

std::string feed_done(int64_t step) { return text("done ", step, "\n"); }

}  // namespace graphpipe::wire
