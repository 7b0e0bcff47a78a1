#pragma once
// Batches that another program supplies while the training runs: a feeder behind a Unix socket, with shared memory for
// the batches themselves (docs/data-protocol.md). The feeder decides which samples a step takes; every rank of the run
// takes the same batches.

#include <memory>
#include <string>

#include "runtime/io/data.h"

namespace graphpipe::runtime {

struct FeedSetup {
  std::string socket;
  wire::DataTable table;
  int64_t batch = 1;
  int ranks = 1, rank = 0;
  /// A feeder that sends nothing for longer than this ends the run.
  double patience_seconds = 10;
};

/// Connects; the first step that is requested starts the transfer. Throws RunError: kUnreadableFile if nobody listens,
/// kPeerFailed if the feeder ends, is too slow or breaks the protocol, kBadData if its ids are out of bounds.
std::unique_ptr<Data> open_feed(const FeedSetup& setup);

}  // namespace graphpipe::runtime
