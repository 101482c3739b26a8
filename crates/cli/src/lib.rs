//! The commands of waypost: arguments to calls, results to tables or JSON.
