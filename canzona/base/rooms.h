// The rooms, and whose names each of them sees: the arrows of
// docs/architecture.md. A name of a room that lies to the right does not
// compile. Names of `canzona` itself, those of base and of all installed
// headers, are seen everywhere.
//
// A header whose names another room uses includes this.
#pragma once

// clang-format off
namespace canzona::trace {}
namespace canzona::linalg {}
namespace canzona::shapes {}
namespace canzona::data {}

namespace canzona::comm { using namespace trace; }
namespace canzona::rules { using namespace linalg; }
namespace canzona::plan { using namespace rules; using namespace shapes; }
namespace canzona::sim { using namespace plan; }
namespace canzona::runtime { using namespace comm; using namespace plan; }
namespace canzona::checkpoint { using namespace shapes; }
namespace canzona::saving {
using namespace checkpoint; using namespace runtime;
}
namespace canzona::model {
using namespace comm; using namespace linalg; using namespace shapes;
}
namespace canzona::train {
using namespace data; using namespace model; using namespace saving;
}
namespace canzona::measure { using namespace sim; using namespace train; }
namespace canzona::report { using namespace sim; using namespace trace; }
namespace canzona::c { using namespace report; using namespace runtime; }
namespace canzona::report::bench { using namespace measure; }
namespace canzona::cli {
using namespace report;
using namespace report::bench;
}
namespace canzona::bench {
using namespace report;
using namespace report::bench;
}
namespace canzona::tests {
using namespace c; using namespace report;
using namespace report::bench;
}
// clang-format on
