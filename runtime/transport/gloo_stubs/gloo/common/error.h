#pragma once
// See gloo/algorithm.h.

namespace gloo {
class EnforceNotMet;
}
