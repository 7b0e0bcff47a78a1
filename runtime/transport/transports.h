#pragma once
// The transports between ranks; each is one file of its name.

#include "runtime/transport/channel.h"

namespace graphpipe::runtime {

/// Shared memory between the ranks of a host, TCP between hosts: open_shm if all ranks are on one host, open_tcp if
/// each has its own.
std::unique_ptr<Transport> open_auto(const TransportSetup& setup);

/// Rings in shared memory. The ranks of TransportSetup::sharing must run on one host, in one PID namespace, as one
/// user.
std::unique_ptr<Transport> open_shm(const TransportSetup& setup);
/// The ranks that can use open_shm with this one, including itself, in ascending order; decided via the store, so that
/// all of them get the same result.
std::vector<int32_t> ranks_of_host(const TransportSetup& setup);
/// Whether those are all ranks.
bool ranks_share_memory(const TransportSetup& setup);

/// TCP connections. Needs TransportSetup::control.
std::unique_ptr<Transport> open_tcp(const TransportSetup& setup);

/// NCCL, or null if this build does not include it.
std::unique_ptr<Transport> open_nccl(const TransportSetup& setup);

}  // namespace graphpipe::runtime
