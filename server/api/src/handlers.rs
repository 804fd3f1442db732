//! Handlers of routes, all of one type.

use std::fmt;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use futures::future::BoxFuture;

use crate::state::AppState;

type Call = dyn Fn(Request, Arc<AppState>) -> BoxFuture<'static, Response> + Send + Sync;

/// A handler behind a pointer, made by [`boxed`].
#[derive(Clone)]
pub(crate) struct BoxedHandler(Arc<Call>);

impl fmt::Debug for BoxedHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedHandler").finish_non_exhaustive()
    }
}

impl Handler<(), Arc<AppState>> for BoxedHandler {
    type Future = BoxFuture<'static, Response>;

    fn call(self, request: Request, state: Arc<AppState>) -> Self::Future {
        (self.0)(request, state)
    }
}

/// Puts a handler behind a pointer, before a route takes it.
///
/// The router's code is generic over its handlers: of each one's whole future the compiler proves again at some twenty places
/// that threads may pass it on, which was half of the build of this crate. Behind a pointer all of them are one type.
pub(crate) fn boxed<T, H: Handler<T, Arc<AppState>>>(handler: H) -> BoxedHandler {
    BoxedHandler(Arc::new(move |request, state| Box::pin(handler.clone().call(request, state))))
}
