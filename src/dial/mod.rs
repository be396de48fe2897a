//! Layer 2: the websocket client: TLS, proxy, backoff. Moves bytes, decides nothing.
