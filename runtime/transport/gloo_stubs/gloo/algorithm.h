#pragma once
// The names that c10d's ProcessGroupGloo.hpp uses, declared and no more. LibTorch ships that header without Gloo's own.
// Our code touches no Gloo object: it calls functions that LibTorch exports and keeps pointers.
