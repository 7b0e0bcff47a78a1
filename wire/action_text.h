#pragma once
// An action row as text: what schedules, traces and messages call it, on both sides of the wall.

#include <string>

#include "wire/action.h"

namespace graphpipe::wire {

/// "2F[0,4)v1", "0r1SEND_F[0,4)e3p0s1": stage, replica where it is not 0, op, samples, then the fields that differ from
/// ActionRow's defaults (e edge, p peer replica, s slot, v version, c stream, o overlaps the next).
std::string action_text(const ActionRow& row);

}  // namespace graphpipe::wire
