//! The RocketMQ remoting protocol: frames, headers, codes and bodies.
