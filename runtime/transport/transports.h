#pragma once
// The transports between ranks; each is one file of its name.

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Rings in shared memory. All ranks must run on one host, in one process-id namespace, as one user.
std::unique_ptr<Transport> open_shm(const TransportSetup& setup);
/// Whether this rank could use open_shm with all others: equal on all ranks, decided over the store.
bool ranks_share_memory(const TransportSetup& setup);

/// TCP connections. Needs TransportSetup::control.
std::unique_ptr<Transport> open_tcp(const TransportSetup& setup);

/// NCCL, or null where this build has none.
std::unique_ptr<Transport> open_nccl(const TransportSetup& setup);

}  // namespace graphpipe::runtime
